"""Tools that operators write run beside the service: none of them ends it, and none holds it or another one up."""

import asyncio
import contextlib
from collections.abc import Generator
from uuid import UUID, uuid4

import pytest

from fakes import hostile_tools
from fakes.stage import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.message import ToolCall
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.call_plugin import MAX_THREADS, MAX_THREADS_OF_OWNER
from throughline.execution.compute_threads import work_for

NIL = UUID(int=0)
CONTEXT = ToolContext(SessionId(NIL), UserId(NIL), RunId(NIL), idempotency_key="run:call")
LONG = 60.0


@pytest.fixture(autouse=True)
def fresh_events() -> Generator[None]:
    hostile_tools.blocking.clear()
    hostile_tools.let_go.clear()
    hostile_tools.waiting.clear()
    hostile_tools.was_cancelled.clear()
    yield
    hostile_tools.let_go.set()


async def own() -> str:
    """Be a coroutine function of the service."""
    return "ours"


async def run(name: str, *, timeout_seconds: float = LONG) -> ToolOutcome:
    box = make_tool_box([f"fakes.hostile_tools:{name}"], timeout_seconds, 1_000)
    return await box.run(ToolCall("call", name, "{}"), CONTEXT)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("interrupt", "KeyboardInterrupt"),
        ("leave", "SystemExit"),
        ("close_generator", "GeneratorExit"),
        ("raise_own", "OwnError"),
        ("cancel_everything", "CancelledError"),
    ],
)
async def test_whatever_is_raised_becomes_a_result(name: str, kind: str) -> None:
    assert await run(name) == ToolOutcome(f"{name} failed with {kind}.", is_error=True)


@pytest.mark.parametrize("name", ["interrupt_later", "stop_the_loop"])
async def test_a_tool_that_ends_its_event_loop_fails_alone(name: str) -> None:
    beside = asyncio.create_task(run("block"))
    await asyncio.to_thread(hostile_tools.blocking.wait, LONG)

    assert (await run(name)).is_error
    hostile_tools.let_go.set()
    assert await beside == ToolOutcome("let go")


async def test_a_result_does_not_wait_for_what_the_tool_left_behind() -> None:
    outcome = await run("leave_a_thread_behind")
    is_still_held = not hostile_tools.let_go.is_set()

    assert (outcome, is_still_held) == (ToolOutcome("done"), True)


async def test_an_error_does_not_wait_for_what_the_tool_left_behind() -> None:
    outcome = await run("raise_and_leave_a_thread_behind", timeout_seconds=HANG_SECONDS)
    is_still_held = not hostile_tools.let_go.is_set()

    failed = ToolOutcome("raise_and_leave_a_thread_behind failed with OwnError.", is_error=True)
    assert (outcome, is_still_held) == (failed, True)


@pytest.mark.parametrize("name", ["return_what_will_not_be_text", "return_what_ends_the_process"])
async def test_a_result_that_cannot_be_read_is_an_error(name: str) -> None:
    assert (await run(name)).is_error


async def test_a_tool_that_will_not_be_cancelled_is_left_behind() -> None:
    outcome = await run("swallow_cancellation", timeout_seconds=0.05)

    assert "did not answer within 0.05 seconds" in outcome.text
    assert await run("say_who_asks") == ToolOutcome("nobody")


async def test_a_tool_that_is_given_up_is_cancelled() -> None:
    while not hostile_tools.waiting.is_set():  # given up before it began, it would not be cancelled
        await run("tell_of_cancelling", timeout_seconds=0.2)

    assert await asyncio.to_thread(hostile_tools.was_cancelled.wait, LONG)


async def test_a_tool_whose_turn_is_cancelled_is_cancelled() -> None:
    call = asyncio.create_task(run("tell_of_cancelling"))
    while not hostile_tools.waiting.is_set():
        await asyncio.sleep(0.001)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call

    assert await asyncio.to_thread(hostile_tools.was_cancelled.wait, LONG)


@pytest.mark.slow
async def test_a_blocking_coroutine_holds_up_neither_the_service_nor_other_tools() -> None:
    blocked = asyncio.create_task(run("block"))
    while not hostile_tools.blocking.is_set():
        await asyncio.sleep(0.001)

    others = await asyncio.gather(*(run("say_where") for _ in range(10)))
    is_still_blocked = not blocked.done()
    hostile_tools.let_go.set()

    assert is_still_blocked
    assert others == [ToolOutcome("plugin")] * 10
    assert await blocked == ToolOutcome("let go")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hold_thread", "hold_thread_later"])
async def test_one_call_too_many_under_way_is_not_made_and_later_ones_are(name: str) -> None:
    box = make_tool_box([f"fakes.hostile_tools:{name}"], HANG_SECONDS, 1_000, further=(own,))
    held: list[asyncio.Task[ToolOutcome]] = []
    while not any(call.done() for call in held[-1:]):  # other tests may have left some behind
        held.append(asyncio.create_task(box.run(ToolCall("call", name, "{}"), CONTEXT)))
        while not (held[-1].done() or hostile_tools.holding.acquire(blocking=False)):
            await asyncio.sleep(0)

    refused, beside = await held.pop(), await box.run(ToolCall("call", "own", "{}"), CONTEXT)
    hostile_tools.let_go.set()
    ended = await asyncio.gather(*held)

    assert refused.is_error
    assert f"{name} was not called: 1000 plugin calls are under way" in refused.text
    assert beside == ToolOutcome("ours")
    assert 0 < len(held) <= MAX_THREADS
    assert ended == [ToolOutcome("let go")] * len(held)
    while (await run("name_thread")).is_error:
        await asyncio.sleep(0.001)


@pytest.mark.slow
async def test_one_user_whose_tools_hang_keeps_nobody_elses_from_being_called() -> None:
    box = make_tool_box(["fakes.hostile_tools:hold_thread", "fakes.hostile_tools:name_thread"], HANG_SECONDS, 1_000)

    async def call(owner_id: UserId, name: str) -> ToolOutcome:
        work_for(owner_id)
        return await box.run(ToolCall("call", name, "{}"), CONTEXT)

    anna, bert = UserId(uuid4()), UserId(uuid4())
    held = [asyncio.create_task(call(anna, "hold_thread")) for _ in range(MAX_THREADS_OF_OWNER)]
    for _ in held:
        while not hostile_tools.holding.acquire(blocking=False):
            await asyncio.sleep(0)
    refused, others = await asyncio.gather(
        asyncio.create_task(call(anna, "name_thread")), asyncio.create_task(call(bert, "name_thread"))
    )
    hostile_tools.let_go.set()
    await asyncio.gather(*held)

    assert refused.is_error
    assert "250 plugin calls of this user are under way" in refused.text
    assert not others.is_error


@pytest.mark.parametrize("name", ["say_who_asks", "say_later"])
async def test_context_variables_are_carried_over(name: str) -> None:
    hostile_tools.asked_by.set("anna")

    assert await run(name) == ToolOutcome("anna")


async def test_a_built_in_coroutine_stays_on_the_event_loop_of_the_service() -> None:
    here = asyncio.get_running_loop()

    async def look() -> bool:
        """Compare the event loops."""
        return asyncio.get_running_loop() is here

    box = make_tool_box((), LONG, 1_000, further=(look,))

    assert await box.run(ToolCall("call", "look", "{}"), CONTEXT) == ToolOutcome("true")
