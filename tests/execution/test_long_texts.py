"""What one user sends is counted, planned and cut beside the event loop, in its own turn and in the later ones."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from fakes.scripted_model import Say, ScriptedModel
from fakes.stage import open_stage
from fakes.waiting import HANG_SECONDS
from fakes.watched_counter import WatchedCounter
from throughline.db.database import Database
from throughline.domain.basic_types import UserId
from throughline.domain.message import NewMessage, Role, Source
from throughline.domain.run import RunStatus
from throughline.execution.compute_threads import (
    LARGE_CHARACTERS,
    compute_threads,
    run_in_compute_thread,
    run_off_loop_if_large,
    work_for,
)
from throughline.turn.prompting.context_report import preview_context, report_context
from throughline.turn.prompting.planning import count_all_new, count_new


@pytest.mark.parametrize(
    "unit", ["x ", *(pytest.param(unit, marks=pytest.mark.proof) for unit in (" ", "<", "漢字", "QUJD"))]
)
async def test_no_long_text_is_counted_on_the_event_loop(database: Database, unit: str) -> None:
    stage = await open_stage(database, model=ScriptedModel(Say("one"), Say("two")))
    counter = WatchedCounter()
    stage.dependencies = replace(stage.dependencies, make_counter=lambda _: counter)

    first = await stage.turn("x" + unit * (400_000 // len(unit)))
    second = await stage.turn("And now?")
    await report_context(stage.dependencies, await stage.reload())
    await preview_context(stage.dependencies, await stage.reload(), "y" + unit * 100_000)

    assert [first.status, second.status] == [RunStatus.SUCCEEDED] * 2
    assert max(counter.on_loop) <= LARGE_CHARACTERS
    assert max(counter.beside) > LARGE_CHARACTERS


async def test_many_short_messages_are_counted_together_beside_the_event_loop() -> None:
    counter = WatchedCounter()
    messages = [NewMessage(role=Role.USER, content="hi", source=Source.API)] * 1_000

    counted = await count_all_new(messages, counter)

    assert counter.on_loop == []
    assert len(counter.beside) == len(counted) == len(messages)
    assert counted[0] == await count_new(messages[0], counter)


async def test_work_on_a_short_text_costs_no_thread() -> None:
    assert await run_off_loop_if_large(LARGE_CHARACTERS, threading.get_ident) == threading.get_ident()
    assert await run_off_loop_if_large(LARGE_CHARACTERS + 1, threading.get_ident) != threading.get_ident()


async def test_so_many_threads_compute_and_no_more() -> None:
    busy, most, lock, two_at_once = 0, 0, threading.Lock(), threading.Barrier(2)

    def compute() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        two_at_once.wait(timeout=20)
        with lock:
            busy -= 1

    async with compute_threads(2):
        await asyncio.gather(*(run_in_compute_thread(compute) for _ in range(20)))

    assert most == 2


async def test_long_texts_of_one_user_do_not_wait_behind_all_those_of_another() -> None:
    order: list[str] = []
    both_wait, anna, bert = asyncio.Event(), UserId(uuid4()), UserId(uuid4())

    async def work(owner: UserId, name: str) -> None:
        work_for(owner)
        await both_wait.wait()
        await run_off_loop_if_large(LARGE_CHARACTERS + 1, lambda: order.append(name))

    async with compute_threads(2), asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(work(anna, "anna"))
        tasks.create_task(work(bert, "bert"))
        await asyncio.sleep(0)
        both_wait.set()

    assert order.index("bert") < 3


async def test_a_user_who_gives_up_waiting_gets_no_second_thread() -> None:
    """A thread cannot be stopped: until it is free, it is the user's one."""
    anna, has_begun, may_end, order = UserId(uuid4()), threading.Event(), threading.Event(), list[str]()

    def work_long() -> None:
        has_begun.set()
        may_end.wait(HANG_SECONDS)
        order.append("first")

    async def work(do: Callable[[], None]) -> None:
        work_for(anna)
        await run_off_loop_if_large(LARGE_CHARACTERS + 1, do)

    async with compute_threads(2):
        given_up = asyncio.create_task(work(work_long))
        await asyncio.to_thread(has_begun.wait, HANG_SECONDS)
        given_up.cancel()
        second = asyncio.create_task(work(lambda: order.append("second")))
        await asyncio.sleep(0.05)
        may_end.set()
        await second

    assert order == ["first", "second"]


async def test_a_turn_with_short_texts_waits_for_no_thread(database: Database) -> None:
    """Whatever a library does in threads of its own accord, as LangGraph and name lookups do, has others."""
    stage = await open_stage(database, model=ScriptedModel(Say("one")))
    may_end = threading.Event()
    async with compute_threads(1):
        work = run_off_loop_if_large(LARGE_CHARACTERS + 1, lambda: may_end.wait(HANG_SECONDS))
        long_work = asyncio.create_task(work)
        run = await stage.turn("What is the time?")
        may_end.set()

        assert run.status is RunStatus.SUCCEEDED
        assert await long_work, "the thread was given back before the turn had ended"
