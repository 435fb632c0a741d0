"""The context window of one model as it is known now: from its server if that was asked, else by the model's name.

The server is asked when the service starts, and again now and then, because it may be started later or differently.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.execution.error_boundary import ErrorBoundary
from throughline.llm.server_windows import ServerWindow

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
