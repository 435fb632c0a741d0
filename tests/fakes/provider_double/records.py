"""What the double remembers of each request, and how much of a conversation's prompt stayed the same."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from fakes.provider_double.counting import texts_of
from fakes.provider_double.json_types import Json
from throughline.context.summaries.summary_prompt import EXISTING_TAG
from throughline.context.view.placeholder_texts import undelimited

_SHOWN = re.compile(r"^\[#(\d+) (?:user|assistant|tool)\b", re.MULTILINE)
_BLOCK = 4096


class Verdict(StrEnum):
    """What became of a request: answered, failed by the script, or refused and why."""

    ANSWERED = "answered"
    FAILED = "failed"
    OVER_WINDOW = "over_window"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request.

    `line` is the script line it was answered from, `conversation` the name its system message carries.
    `overlapped` tells that another request of the same conversation was still being answered. `positions` are the
    numbers of the `[#N role …` record lines it was shown. `is_whole` tells that its answer was sent to the end, to a
    client that was still there. `prompt` is empty where prompts are not kept; `shared_bytes` of
    the `previous_bytes` of the conversation's last prompt stand at the start of this one, too. `cache_read_tokens`,
    `cache_written_tokens` and `markers` (in the request) are of providers with a prompt cache.
    """

    number: int
    at: float
    model: str
    conversation: str
    line: str
    verdict: Verdict
    refusal: str
    prompt_tokens: int
    window_tokens: int
    max_tokens: int | None
    prompt: tuple[Json, ...] = ()
    tools: tuple[Json, ...] = ()
    settings: Json = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    overlapped: bool = False
    previous_bytes: int = 0
    shared_bytes: int = 0
    cache_read_tokens: int = 0
    cache_written_tokens: int = 0
    markers: int = 0
    is_whole: bool = False

    @property
    def is_summary(self) -> bool:
        """Whether a summary was asked for."""
        return self.line == "summariser"

    def as_json(self) -> Json:
        """Return the record for the control routes."""
        return asdict(self)


@dataclass(slots=True)
class PrefixMeter:
    """Compares each prompt of a conversation with the one before: tools first, then messages, as caches see them."""

    last: dict[str, bytes] = field(default_factory=dict)

    def measure(self, conversation: str, tools: Sequence[Json], messages: Sequence[Json]) -> tuple[int, int]:
        """Return the bytes of the previous prompt and how many of them this one begins with."""
        text = _dumps(tools) + _dumps(messages)[:-1]
        before = self.last.get(conversation, b"")
        self.last[conversation] = text
        return len(before), common_prefix(before, text)


def common_prefix(first: bytes, second: bytes) -> int:
    """Return how many bytes both begin with."""
    length = min(len(first), len(second))
    start = 0
    while start < length and first[start : start + _BLOCK] == second[start : start + _BLOCK]:
        start += _BLOCK
    end = min(start + _BLOCK, length)
    return next((index for index in range(start, end) if first[index] != second[index]), length)


def positions_in(messages: Sequence[Json]) -> tuple[int, ...]:
    """Return the numbers of the record lines (`[#12 user] …`) in the messages, each once, in order."""
    return positions_in_texts(text for message in messages for text in texts_of(message))


def positions_in_texts(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of the record lines in the texts, each once, in order.

    Lines of an existing summary, which a merge is made of, are no record.
    """
    shown = (text for text in texts if "[#" in text)
    return tuple(sorted({int(number) for text in shown for number in _SHOWN.findall(_without_summaries(text))}))


def sent_whole(requests: list[RequestRecord], number: int) -> None:
    """Note in its record that the answer to request `number` was sent to its end."""
    for place, record in enumerate(requests):
        if record.number == number:
            requests[place] = replace(record, is_whole=True)


def _without_summaries(text: str) -> str:
    summary = undelimited(EXISTING_TAG, text)
    return text.replace(summary, "") if summary else text


def _dumps(value: Sequence[Json]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
