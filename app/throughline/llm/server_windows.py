"""Recognition of a model's window in the answers of model servers, by the shape that each server alone sends.

`ask_window.py` collects the answers. Each function takes parsed answers and returns the window, or None. Numbers that
are no plausible window are ignored.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from throughline.domain.json_types import JsonValue

LEAST_TOKENS, MOST_TOKENS = 256, 100_000_000
"""Smallest and largest number that is taken for a window."""

DEFAULT_OF_LOCAL_SERVERS = 4096
"""Lowest window that Ollama and LM Studio give a model for which nothing is set."""

OWNERS = {"vllm": "vLLM", "sglang": "SGLang"}
NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
LISTED_AS = ("max_model_len", "context_length", "context_window")
"""Fields with the window in a list of models: of vLLM and SGLang, of OpenRouter, and of Groq."""


@dataclass(frozen=True, slots=True)
class ServerWindow:
    """A window in tokens, and the name of the server that reported it.

    `is_assumed`: the server was recognised, but did not say with which window it will load the model. `tokens` is then
    the lowest default of such a server.
    """

    tokens: int
    server: str
    is_assumed: bool = False


def listed_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window in a list of models (`GET /v1/models`).

    OpenRouter's `top_provider` may take less than the model does. Its names may carry a variant (`:nitro`) that the
    list omits. vLLM lists an adapter with the name of its model (`parent`).
    """
    entries = {str(entry.get("id")): entry for entry in _entries(answer)}
    entry = entries.get(model) or entries.get(model.rpartition(":")[0])
    if entry is None:
        return None
    listed = _listed(entry) or _listed(entries.get(str(entry.get("parent")), {}))
    if not listed:
        return None
    top = entry.get("top_provider")
    if isinstance(top, Mapping):
        return ServerWindow(min(listed[0], _plausible(top.get("context_length")) or listed[0]), "OpenRouter")
    return ServerWindow(listed[0], OWNERS.get(str(entry.get("owned_by")), "the server"))


def _listed(entry: Mapping[str, JsonValue]) -> list[int]:
    return [tokens for name in LISTED_AS if (tokens := _plausible(entry.get(name))) is not None]


def ollama_window(shown: JsonValue, running: JsonValue, model: str) -> ServerWindow | None:
    """Return the window with which Ollama runs the model (`POST /api/show`, `GET /api/ps`).

    Ollama cuts a longer prompt silently, so the length for which the model was trained (`*.context_length`) is no
    window to use. These decide, in this order, and never more than the trained length:

    1. a remote model (`remote_host`) has its trained length;
    2. `num_ctx` among the model's parameters, because Ollama applies it to each request that names none;
    3. the `context_length` of the loaded model;
    4. 4,096 tokens. A model that is not loaded gets `OLLAMA_CONTEXT_LENGTH` of the server or a default that grows with
       its memory. Neither is readable from outside, and 4,096 is the lowest such default.
    """
    if not isinstance(shown, Mapping) or not isinstance(info := shown.get("model_info"), Mapping):
        return None
    lengths = (_plausible(value) for name, value in info.items() if name.endswith(".context_length"))
    trained = next((tokens for tokens in lengths if tokens is not None), MOST_TOKENS)
    if shown.get("remote_host"):
        return ServerWindow(trained, "Ollama") if trained < MOST_TOKENS else None
    parameter = NUM_CTX.search(str(shown.get("parameters") or ""))
    known = (_plausible(int(parameter[1])) if parameter else None) or _loaded_by_ollama(running, model)
    return ServerWindow(min(known or DEFAULT_OF_LOCAL_SERVERS, trained), "Ollama", is_assumed=known is None)


def _loaded_by_ollama(running: JsonValue, model: str) -> int | None:
    names = {model, f"{model}:latest"}
    loaded = (entry for entry in _entries(running, "models") if str(entry.get("model", entry.get("name"))) in names)
    return next((_plausible(entry.get("context_length")) for entry in loaded), None)


def llama_cpp_window(answer: JsonValue) -> ServerWindow | None:
    """Return the window of one slot of llama.cpp's server (`GET /props`), which is what one request may take.

    The server divides its whole context (`--ctx-size`) among the slots.
    """
    settings = answer.get("default_generation_settings") if isinstance(answer, Mapping) else None
    tokens = _plausible(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    return None if tokens is None else ServerWindow(tokens, "llama.cpp")


def lm_studio_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window with which LM Studio has loaded the model (`GET /api/v0/models`).

    It does not say with which it would load a model that is not loaded; 4,096 is its default.
    """
    entry = next((entry for entry in _entries(answer) if entry.get("id") == model), None)
    if entry is None or (most := _plausible(entry.get("max_context_length"))) is None:
        return None
    loaded = _plausible(entry.get("loaded_context_length"))
    return ServerWindow(min(loaded or DEFAULT_OF_LOCAL_SERVERS, most), "LM Studio", is_assumed=loaded is None)


def litellm_window(answer: JsonValue, model: str) -> ServerWindow | None:
    """Return the window of LiteLLM's proxy (`GET /model/info`): the smallest of the deployments of that name."""
    infos = [entry.get("model_info") for entry in _entries(answer) if entry.get("model_name") == model]
    limits = [_plausible(info.get("max_input_tokens")) for info in infos if isinstance(info, Mapping)]
    known = [tokens for tokens in limits if tokens is not None]
    return ServerWindow(min(known), "LiteLLM") if known else None


def _entries(answer: JsonValue, name: str = "data") -> Iterator[Mapping[str, JsonValue]]:
    listed = answer.get(name) if isinstance(answer, Mapping) else None
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, Mapping):
            yield entry


def _plausible(value: JsonValue) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if LEAST_TOKENS <= value < MOST_TOKENS else None
