"""`POST /v1/embeddings` of the double: vectors of words, so that texts that share words or meanings are near."""

import math
import random
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from fakes.provider_double.checks import empty_array, empty_string, invalid_value, missing, wrong_type
from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.replies import Ending, Reply, json_reply, refusal_reply

KNOWN = {"input", "model", "encoding_format", "dimensions", "user"}
MOST_INPUTS = 2048
MEANINGS = {"feline": "cat", "kitten": "cat", "automobile": "car", "beverage": "tea", "dwells": "lives"}
"""Words that mean the same: only vectors know."""

_WORD = re.compile(r"\w+")
EmbeddingFailure = Literal["", "down", "hang", "quota", "rate", "nonsense"]


@dataclass(slots=True)
class EmbeddingDouble:
    """What the endpoint does: `dimensions` are the model's own, a text may have `max_tokens` words.

    A text with the word `refused_word` is declined; the server fails at one with `broken_word`.
    `requests` are the texts of every request that came, in order.
    """

    dimensions: int = 64
    max_tokens: int = 8192
    failure: EmbeddingFailure = ""
    refused_word: str = ""
    broken_word: str = ""
    requests: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """All texts that were asked for."""
        return [text for request in self.requests for text in request]

    def reset(self) -> None:
        """Be as at the beginning."""
        self.dimensions, self.max_tokens, self.failure, self.refused_word = 64, 8192, "", ""
        self.broken_word = ""
        self.requests.clear()

    def answer(self, body: Json) -> Reply:
        """Check and answer one request."""
        try:
            return self._answered(body)
        except Refused as refused:
            return refusal_reply(refused)

    def _answered(self, body: Json) -> Reply:
        texts = _texts(body)
        self.requests.append(texts)
        if self.failure == "hang":
            return Reply((), ending=Ending.HANG)
        if self.failure == "rate":
            refused = Refused("Rate limit reached. Please try again in 7s.", status=429, code="rate_limit_exceeded")
            return replace(refusal_reply(refused), headers=(("retry-after", "7"),))
        self._fail()
        self._check(texts)
        dimensions = body.get("dimensions") or self.dimensions
        vectors = [[0.0] * dimensions if self.failure == "nonsense" else embed(text, dimensions) for text in texts]
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        tokens = sum(map(_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_reply({"object": "list", "data": data, "model": body["model"], "usage": usage})

    def _fail(self) -> None:
        if self.failure == "down":
            raise Refused("The server had an error while processing your request.", status=500, type="server_error")
        if self.failure == "quota":
            raise Refused("You exceeded your current quota.", status=429, code="insufficient_quota")

    def _check(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            if self.broken_word and self.broken_word in _WORD.findall(text):
                raise Refused("Input is too large to process.", status=500, type="server_error")
            if self.refused_word and self.refused_word in _WORD.findall(text):
                raise Refused("The content was filtered.", code="content_filter")
            if _tokens(text) > self.max_tokens:
                raise Refused(
                    f"This model's maximum context length is {self.max_tokens} tokens, however you requested "
                    f"{_tokens(text)} tokens ({_tokens(text)} in your prompt; 0 for the completion). Please reduce "
                    "your prompt; or completion length."
                )


def embed(text: str, dimensions: int) -> list[float]:
    """Return a vector of length 1: the sum of a random direction for each word, always the same one."""
    vector = [1e-3] * dimensions
    for word in _WORD.findall(text.lower()) or [text]:
        directions = random.Random(MEANINGS.get(word, word))
        vector = [value + directions.gauss(0.0, 1.0) for value in vector]
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


def _tokens(text: str) -> int:
    return len(_WORD.findall(text))


def _texts(body: Json) -> tuple[str, ...]:
    unknown = sorted(body.keys() - KNOWN)
    if unknown:
        raise Refused(f"Unrecognized request argument supplied: {unknown[0]}", param=unknown[0])
    for name in ("input", "model"):
        if name not in body:
            raise missing(name)
    if body.get("encoding_format", "float") != "float":
        raise invalid_value("encoding_format", body["encoding_format"], "'float'")
    return _inputs([body["input"]] if isinstance(body["input"], str) else body["input"])


def _inputs(given: object) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise wrong_type("input", "a string or an array of strings", given)
    if not 0 < len(given) <= MOST_INPUTS:
        raise empty_array("input")
    for text in given:
        if not isinstance(text, str):
            raise wrong_type("input", "a string or an array of strings", text)
        if not text:
            raise empty_string("input")
    return tuple(given)
