"""What one user sends is counted, planned and cut beside the event loop, in its own turn and in the later ones."""

import threading
from dataclasses import replace

import pytest

from app.db.database import Database
from app.domain.run import RunStatus
from app.turn.context_report import report_context
from app.turn.off_loop import LARGE_CHARACTERS, run_off_loop_if_large
from app.turn.preview import preview_context
from fakes.scripted_model import Say, ScriptedModel
from fakes.stage import open_stage
from fakes.watched_counter import WatchedCounter


@pytest.mark.parametrize("unit", ["x ", " ", "<", "漢字", "QUJD"])
async def test_no_long_text_is_counted_on_the_event_loop(database: Database, unit: str) -> None:
    stage = await open_stage(database, model=ScriptedModel(Say("one"), Say("two")))
    counter = WatchedCounter()
    stage.parts = replace(stage.parts, make_counter=lambda _: counter)

    first = await stage.turn("x" + unit * (400_000 // len(unit)))
    second = await stage.turn("And now?")
    await report_context(stage.parts, await stage.reload())
    await preview_context(stage.parts, await stage.reload(), "y" + unit * 100_000)

    assert [first.status, second.status] == [RunStatus.SUCCEEDED] * 2
    assert max(counter.on_loop) <= LARGE_CHARACTERS
    assert max(counter.beside) > LARGE_CHARACTERS


async def test_work_on_a_short_text_costs_no_thread() -> None:
    assert await run_off_loop_if_large(LARGE_CHARACTERS, threading.get_ident) == threading.get_ident()
    assert await run_off_loop_if_large(LARGE_CHARACTERS + 1, threading.get_ident) != threading.get_ident()
