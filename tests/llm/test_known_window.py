"""The window of one model between the questions to its server."""

import asyncio
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from fakes.manual_clock import ManualClock
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.llm.ask_window import ServerWindow
from throughline.llm.context_windows import ANSWERED_SECONDS, UNANSWERED_SECONDS, KnownWindow

BY_NAME = ModelWindow(8192, WindowOrigin.UNKNOWN)
VLLM = ServerWindow(40_960, "vLLM")
NOT_LOADED = ServerWindow(4096, "Ollama", is_assumed=True)
LOADED = ServerWindow(16_384, "Ollama")


@dataclass
class ScriptedServer:
    """Gives its answers in order, each once `gate` is open."""

    answers: list[ServerWindow | None | Exception]
    times_asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> ServerWindow | None:
        self.times_asked += 1
        await self.gate.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def known(server: ScriptedServer, clock: ManualClock, by_name: ModelWindow = BY_NAME) -> KnownWindow:
    server.gate.set()
    return KnownWindow("openai:m", by_name, server.ask, monotonic=clock.monotonic)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_model_whose_server_is_not_asked_keeps_the_window_of_its_name() -> None:
    window = KnownWindow("openai:m", BY_NAME)

    await window.refresh()

    assert window.window == BY_NAME
    await window.close()


async def test_the_first_question_is_waited_for_and_asked_once() -> None:
    server = ScriptedServer([VLLM])
    window = known(server, ManualClock())

    await asyncio.gather(window.refresh(), window.refresh(), window.refresh())

    assert window.window == ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
    assert server.times_asked == 1


async def test_the_server_comes_before_profile_and_table() -> None:
    window = known(ScriptedServer([VLLM]), ManualClock(), ModelWindow(128_000, WindowOrigin.PROFILE))

    await window.refresh()

    assert window.window.tokens == 40_960


@pytest.mark.parametrize("nothing", [None, RuntimeError("a mistake of ours")])
async def test_a_server_that_says_nothing_leaves_the_window_of_the_name(nothing: Exception | None) -> None:
    window = known(ScriptedServer([nothing]), ManualClock())

    with capture_logs() as logs:
        await window.refresh()

    assert window.window == BY_NAME
    assert len(logs) == (nothing is not None)


async def test_a_later_question_runs_in_the_background() -> None:
    server, clock = ScriptedServer([None, VLLM]), ManualClock()
    window = known(server, clock)
    await window.refresh()
    server.gate.clear()

    clock.advance(UNANSWERED_SECONDS - 1)
    await window.refresh()
    clock.advance(1)
    await window.refresh()
    await window.refresh()
    await settle()
    asked, before = server.times_asked, window.window
    server.gate.set()
    with capture_logs() as logs:
        await settle()

    assert (asked, before) == (2, BY_NAME)
    assert window.window == ModelWindow(40_960, WindowOrigin.SERVER, "vLLM")
    assert [log["event"] for log in logs] == ["model window changed"]


async def test_a_server_that_answered_is_asked_again_rarely() -> None:
    server, clock = ScriptedServer([VLLM, ServerWindow(20_000, "vLLM"), None]), ManualClock()
    window = known(server, clock)
    await window.refresh()

    for _ in range(2):
        clock.advance(ANSWERED_SECONDS - 1)
        await window.refresh()
        clock.advance(1)
        await window.refresh()
        await settle()

    assert server.times_asked == 3
    assert window.window == ModelWindow(20_000, WindowOrigin.SERVER, "vLLM")


async def test_an_assumed_window_is_unknown_and_replaced_by_a_reported_one() -> None:
    clock = ManualClock()
    window = known(ScriptedServer([NOT_LOADED, LOADED, NOT_LOADED]), clock, ModelWindow(32_768, WindowOrigin.TABLE))
    windows = []

    for _ in range(3):
        await window.refresh()
        await settle()
        windows.append(window.window)
        clock.advance(ANSWERED_SECONDS)

    loaded = ModelWindow(16_384, WindowOrigin.SERVER, "Ollama")
    assert windows == [ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama"), loaded, loaded]


async def test_a_question_ends_when_the_model_is_closed() -> None:
    server = ScriptedServer([VLLM])
    window = KnownWindow("openai:m", BY_NAME, server.ask)
    waiting = asyncio.create_task(window.refresh())
    await settle()

    await window.close()

    assert server.times_asked == 1
    with pytest.raises(asyncio.CancelledError):
        await waiting
