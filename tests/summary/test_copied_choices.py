"""A conversation imported twice and summarised on demand: the choice of its facts is copied too."""

import re
from collections.abc import Sequence

import pytest

from fakes.compactions import SUMMARY, asked, open_summarising
from fakes.imported_texts import adopted, import_texts
from fakes.raw_sql import run_sql
from fakes.scripted_model import Say
from fakes.stage import LEARNED_KEY, Stage
from throughline.context.calibration import Calibration
from throughline.context.policy import SummaryShape
from throughline.context.summaries.facts_choice_prompt import CHOICE_SYSTEM_PROMPT
from throughline.db.database import Database
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange
from throughline.domain.prompt import ModelRequest
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now

COSTS = "select coalesce(sum(input_tokens + output_tokens), 0) from summaries where session_id = $1"
NO_REQUEST = SummaryRequest()
TEXTS = tuple(f"{role} {number} " + "word " * 30 for number in range(7) for role in ("user", "assistant"))
DECISIONS = tuple(
    text for number in range(64) for text in (f"We take part {number} as told in the meeting of that day.", "Good.")
)


def with_facts(request: ModelRequest) -> Say:
    """Name the user's sentences, or choose as many on a list as are asked for, the first ones."""
    if most := re.search(r"Return at most (\d+) numbers", asked(request)):
        return Say(", ".join(str(number + 1) for number in range(int(most[1]))))
    said = re.findall(r"^\[#(\d+) user\] (.+)$", asked(request), re.MULTILINE)
    lines = (f"decision | item {place} | {text} | #{place}" for place, text in said)
    return Say("\n".join((SUMMARY, "KEEP:", *lines)))


async def open_stage_with(database: Database, **summary: object) -> Stage:
    stage = await open_summarising(database, **{"chunk_messages": 20, **summary})  # type: ignore[arg-type]  # fields by name
    stage.model.by_request = with_facts
    return stage


def choices(requests: Sequence[ModelRequest]) -> list[str]:
    return [asked(request) for request in requests if request.prompt.system == CHOICE_SYSTEM_PROMPT]


async def on_demand(stage: Stage, wish: SummaryRequest = NO_REQUEST) -> list[ModelRequest]:
    """Summarise as the route does; return what the model was asked."""
    stage.model.requests.clear()
    done = await summarize_now(stage.dependencies, await stage.reload(), wish)
    assert done.outcome in {"adopted", "skipped"}  # skipped: a wish changed nothing
    assert done.spent.calls == len(stage.model.requests)
    return list(stage.model.requests)


@pytest.mark.parametrize("shape", [SummaryShape.ROLLING, SummaryShape.TIERED])
async def test_the_choice_of_facts_is_copied_too(database: Database, database_url: str, shape: SummaryShape) -> None:
    stage = await open_stage_with(database, shape=shape)
    await import_texts(stage, DECISIONS)
    paid = await on_demand(stage)
    first, counted = await adopted(stage), len(stage.metrics.of("summary_written"))

    await import_texts(stage, DECISIONS)
    again = await on_demand(stage)
    second = await adopted(stage)

    assert (len(choices(paid)), again) == (1, [])
    assert len(stage.metrics.of("summary_written")) == counted
    assert await run_sql(database_url, COSTS, stage.session.id) == [(0,)]
    assert (second.version.text, second.version.kept_facts) == (first.version.text, first.version.kept_facts)
    assert {fact.passed_over for fact in second.version.kept_facts} == {0, 1}

    await import_texts(stage, DECISIONS, owner="ben")
    assert [asked(request) for request in await on_demand(stage)] == [asked(request) for request in paid]


async def test_a_redaction_takes_the_choice_away(database: Database) -> None:
    stage = await open_stage_with(database)
    await import_texts(stage, DECISIONS)
    await on_demand(stage)
    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, (await stage.messages())[2].id))

    await import_texts(stage, DECISIONS)

    assert len(choices(await on_demand(stage))) == 1


async def test_a_wish_is_paid_for_once(database: Database) -> None:
    stage = await open_stage_with(database, chunk_messages=4)
    wish, calls = SummaryRequest("Keep the names."), []
    for _ in range(2):
        await import_texts(stage, TEXTS)
        calls += [len(await on_demand(stage)), len(await on_demand(stage, wish))]

    assert calls == [3, 3, 0, 0]
    assert len(await on_demand(stage, SummaryRequest("Keep the places."))) == 3


async def test_what_a_session_wants_kept_is_paid_for(database: Database) -> None:
    stage = await open_stage_with(database, chunk_messages=4)
    await import_texts(stage, TEXTS)
    await on_demand(stage)

    await import_texts(stage, TEXTS)
    change = SessionChange(summary_instructions="Keep the names.")
    await database.sessions.update(stage.owner_id, stage.session.id, change)

    assert len(await on_demand(stage)) == 3


@pytest.mark.parametrize(("ratio", "is_copied"), [(1.1, True), (1.3, False)])
async def test_a_little_learned_of_a_model_ends_no_copies(database: Database, ratio: float, *, is_copied: bool) -> None:
    stage = await open_stage_with(database)
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(1.05, 20))
    await import_texts(stage, DECISIONS)
    await on_demand(stage)

    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(ratio, 20))
    await import_texts(stage, DECISIONS)

    assert (await on_demand(stage) == []) is is_copied
