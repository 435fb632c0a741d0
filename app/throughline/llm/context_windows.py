"""Context windows of models: from LangChain's profile, else from a table of well-known names, else a low default."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.execution.error_boundary import ErrorBoundary
from throughline.llm.ask_window import ServerWindow

# The context window of one model as it is known now: from its server if that was asked, else by the model's name.
#
# The server is asked when the service starts, and again now and then, because it may be started later or differently.

AskServer = Callable[[], Awaitable[ServerWindow | None]]
ANSWERED_SECONDS = 900.0
"""Seconds until a server that answered is asked again: it may have been restarted with another window."""

UNANSWERED_SECONDS = 60.0
"""Seconds until a server is asked again that was down, said nothing or had not loaded the model."""

log = structlog.get_logger(__name__)


class KnownWindow:
    """The window of one model, and the questions to its server. There is at most one question at a time."""

    def __init__(
        self,
        model: str,
        by_name: ModelWindow,
        ask: AskServer | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the window `by_name`, valid until the server reports one; without `ask` no server is asked."""
        self._monotonic = monotonic
        self._model = model
        self._window = by_name
        self._ask = ask
        self._question: asyncio.Task[None] | None = None
        self._due_at = float("-inf")
        self._was_asked = False

    @property
    def window(self) -> ModelWindow:
        """The window as it is known now."""
        return self._window

    async def refresh(self) -> None:
        """Ask the server if that is due. Only the first question is waited for; later ones run in the background."""
        if self._ask is None:
            return
        is_running = self._question is not None and not self._question.done()
        if not is_running and self._monotonic() >= self._due_at:
            self._question = asyncio.create_task(self._ask_server(self._ask), name="ask for a window")
        if not self._was_asked and self._question is not None:
            await asyncio.shield(self._question)

    async def close(self) -> None:
        """Stop a question that is still open."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)

    async def _ask_server(self, ask: AskServer) -> None:
        answer: ServerWindow | None = None
        with ErrorBoundary(log.error, task="ask for a window", model=self._model):
            answer = await ask()
        is_reported = answer is not None and not answer.is_assumed
        wait = ANSWERED_SECONDS if is_reported else UNANSWERED_SECONDS
        self._due_at = self._monotonic() + wait
        if answer is not None:
            self._keep(answer)
        self._was_asked = True

    def _keep(self, answer: ServerWindow) -> None:
        """Store the window that the server answered.

        An assumed window does not replace an earlier report: the model was only unloaded since then.
        """
        before = self._window
        if answer.is_assumed and before.origin is WindowOrigin.SERVER:
            return
        origin = WindowOrigin.UNKNOWN if answer.is_assumed else WindowOrigin.SERVER
        self._window = ModelWindow(answer.tokens, origin, answer.server)
        if self._was_asked and self._window != before:
            log.info(
                "model window changed",
                model=self._model,
                window=answer.tokens,
                window_from=origin.value,
                server=answer.server,
                before=before.tokens,
            )


DEFAULT_WINDOW = 8192
OFFLINE_WINDOW = 32_768

WINDOWS: Mapping[str, int] = {
    "offline": OFFLINE_WINDOW,
    # OpenAI; for the gpt-5 family the input limit (of a 400,000 window) is what a prompt may use
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-0125": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 272_000,
    "gpt-5-chat": 128_000,
    "gpt-oss": 131_072,
    "chatgpt-4o": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "codex-mini": 200_000,
    # Anthropic
    "claude": 200_000,
    "claude-2.0": 100_000,
    "claude-instant": 100_000,
    # Google
    "gemini": 1_048_576,
    "gemini-1.0": 30_720,
    "gemini-1.5-pro": 2_097_152,
    "gemini-pro": 30_720,
    "gemma": 8192,
    "gemma-3": 131_072,
    "gemma3": 131_072,
    # Meta
    "llama-2": 4096,
    "llama2": 4096,
    "llama-3": 8192,
    "llama3": 8192,
    "meta-llama-3": 8192,
    "llama-3.1": 131_072,
    "llama3.1": 131_072,
    "meta-llama-3.1": 131_072,
    "llama-3.2": 131_072,
    "llama3.2": 131_072,
    "llama-3.3": 131_072,
    "llama3.3": 131_072,
    "llama-4-maverick": 1_048_576,
    "llama-4-scout": 1_048_576,
    # Mistral
    "mistral": 32_768,
    "mistral-large": 131_072,
    "mistral-medium": 131_072,
    "mistral-small": 131_072,
    "mistral-nemo": 131_072,
    "ministral": 131_072,
    "mixtral-8x7b": 32_768,
    "mixtral-8x22b": 65_536,
    "open-mistral-nemo": 131_072,
    "codestral": 262_144,
    "devstral": 131_072,
    "magistral": 40_960,
    "pixtral": 131_072,
    # Alibaba
    "qwen": 32_768,
    "qwen2.5": 32_768,
    "qwen-2.5": 32_768,
    "qwen-turbo": 1_000_000,
    "qwen-plus": 131_072,
    "qwq": 131_072,
    "qwen3": 32_768,
    "qwen3-coder": 262_144,
    "qwen3-max": 262_144,
    # others
    "command-a": 262_144,
    "command-r": 131_072,
    "deepseek": 65_536,
    "deepseek-v3": 131_072,
    "deepseek-r1": 131_072,
    "deepseek-chat": 131_072,
    "deepseek-reasoner": 131_072,
    "glm-4": 131_072,
    "glm-4.6": 204_800,
    "grok": 131_072,
    "grok-4": 262_144,
    "grok-4-fast": 2_000_000,
    "kimi-k2": 131_072,
    "minimax-m1": 1_000_000,
    "minimax-m2": 204_800,
    "phi-3": 4096,
    "phi-4": 16_384,
    "sonar": 128_000,
}

_WORD = re.compile(r"[a-z0-9]+")
_VARIANTS = ("n", "v")
"""Words of one letter that are no misspelling: `gemma3n`, `glm-4v`."""

_LONGEST_FIRST = sorted(WINDOWS, key=len, reverse=True)


def get_context_limit(model_name: str, profile: Mapping[str, object] | None = None) -> int:
    """Return the model's window in tokens, as `find_window` finds it."""
    return find_window(model_name, profile).tokens


def find_window(model_name: str, profile: Mapping[str, object] | None = None) -> ModelWindow:
    """Return what is known of the model's window without asking its server.

    `model_name` may include a provider (`openai:gpt-4o`) or a vendor (`meta-llama/Llama-3.1-8B-Instruct`). `profile` is
    LangChain's profile of the model. In the table, the longest name that the model's name begins with decides.
    """
    profiled = (profile or {}).get("max_input_tokens")
    if isinstance(profiled, int) and profiled > 0:
        return ModelWindow(profiled, WindowOrigin.PROFILE)
    names = names_of(model_name.lower())
    known = next((prefix for prefix in _LONGEST_FIRST if any(name.startswith(prefix) for name in names)), None)
    if known is None:
        return ModelWindow(DEFAULT_WINDOW, WindowOrigin.UNKNOWN)
    rests = [name.removeprefix(known) for name in names if name.startswith(known)]
    neighbour = "" if any(_is_of_the_family(known, rest) for rest in rests) else known
    return ModelWindow(WINDOWS[known], WindowOrigin.TABLE, neighbour=neighbour)


def _is_of_the_family(known: str, rest: str) -> bool:
    """Return whether `rest`, what follows the table's name, is a further word, a version (`gemma2`), or a vendor's end.

    `gpt-4oo` and `gpt-42` are not of a family in the table.
    """
    word = _WORD.match(rest)
    if word is None or rest[word.end() :].startswith("/") or word.group() in _VARIANTS:
        return True
    return rest[0].isdigit() and not known[-1].isdigit()


def names_of(name: str) -> tuple[str, ...]:
    """Return the name itself, then without its provider, then without its vendor (also `bedrock:anthropic.claude-…`).

    The last one is without `ft:`, with which OpenAI marks fine-tuned models.
    """
    bare = name.partition(":")[2] or name
    last = bare.rpartition("/")[2]
    return (name, bare, last, last.partition(".")[2], bare.removeprefix("ft:"))
