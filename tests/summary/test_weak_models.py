"""Compactions with models that write no usable summary: what is true stays, in a summary whose size is bounded."""

import re
from collections.abc import Callable, Sequence

import pytest

from context.test_weak_summaries import BAD, GOOD, SAID
from fakes.compactions import asked, compact_now, open_summarising, store
from fakes.scripted_model import Fail, Say, ScriptedModel, Step
from fakes.stage import Stage
from throughline.context.policy import SummaryShape
from throughline.context.summaries.summary_prompt import EXISTING_TAG, guidance_of
from throughline.context.view.placeholder_texts import undelimited
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.message import Role, text_of
from throughline.domain.prompt import ModelRequest
from throughline.execution.breaker import FAILURES_TO_OPEN
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]
FILLER = (
    "We went over the usual points of the week, as on each Monday: letters, deliveries, cleaning, repairs, invoices, "
    "visitors, heating, parking, keys and the garden behind the warehouse. "
)
NEWS, CODE = "The code of lock {number} is K{number}77.", re.compile(r"The code of lock \d+ is K\d+\.")


async def tell(stage: Stage) -> None:
    """Store a conversation of plain facts."""
    await store(stage, *((said.role, text_of(said.content) + " " + FILLER * 3) for said in SAID))


async def stage_with(database: Database, answer: str, shape: SummaryShape = SummaryShape.TIERED) -> Stage:
    stage = await open_summarising(database, shape=shape)
    stage.model.by_request = lambda _: Say(answer)
    await tell(stage)
    return stage


async def test_a_refused_text_is_asked_for_again_with_the_reason(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.script(Say("Fine."), Say(GOOD))
    await tell(stage)

    done = await compact_now(stage)

    first, second = map(asked, stage.model.requests)
    assert second.removeprefix(first).strip() == (
        "Your last answer was refused: It says too little for what it stands for. Write the summary again."
    )
    assert GOOD in done.session.conversation_summary


@pytest.mark.parametrize("kind", ["one word", "preface and nothing", "marks copied", "German", "a poem"])
async def test_where_every_text_is_refused_the_best_sentences_stand_for_the_messages(
    database: Database, kind: str
) -> None:
    stage = await stage_with(database, BAD[kind])

    done = await compact_now(stage)

    version = await database.summaries.latest(stage.session.id)
    assert (done.outcome, len(stage.model.requests)) == ("adopted", 2)
    assert version is not None
    assert version.model == "offline"
    assert "Rex" in done.session.conversation_summary
    assert BAD[kind] not in done.session.conversation_summary
    assert done.session.summary_failure.endswith(
        "Sentences out of the messages stand in its place; the next summary on demand reads these again."
    )


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_summary_on_demand_reads_again_what_an_extract_stands_for(
    database: Database, shape: SummaryShape
) -> None:
    stage = await stage_with(database, "Fine.", shape)
    reached = (await compact_now(stage)).session.summary_through_position
    nothing = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    stage.model.by_request = lambda _: Say(GOOD)

    cost = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest())
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    again = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    version = await database.summaries.latest(stage.session.id)
    assert version is not None
    assert (nothing.session.summary_through_position, cost.from_position) == (reached, 1)
    assert (done.outcome, version.model, again.outcome) == ("adopted", stage.model.name, "skipped")
    assert GOOD in done.session.conversation_summary


async def test_facts_named_below_a_refused_text_are_kept_with_the_extract(database: Database) -> None:
    stage = await stage_with(
        database, "Fine.\nKEEP:\nperson | dog | Rex | #1\nperson | dog | Rex | #2\nperson | dog | Rex | #3"
    )

    await compact_now(stage)

    version = await database.summaries.latest(stage.session.id)
    assert version is not None
    assert version.model == "offline"
    assert [fact.subject for fact in version.kept_facts if fact.chosen] == ["dog"]


async def test_where_another_model_is_down_nothing_is_extracted(database: Database) -> None:
    own = ScriptedModel()
    own.by_request = lambda _: Fail(ModelUnavailable("away"))
    stage = await open_summarising(database, own=own)
    stage.model.by_request = lambda _: Say("Fine.")
    await tell(stage)

    done = await compact_now(stage)

    assert (done.outcome, done.session.summary_through_position) == ("failed", 0)


async def test_a_model_refused_often_is_left_alone_and_the_summary_goes_on(
    database: Database,
) -> None:
    stage = await stage_with(database, "Fine.")
    for _ in range(FAILURES_TO_OPEN):
        await compact_now(stage)
        await tell(stage)
    calls, reached = len(stage.model.requests), (await stage.reload()).summary_through_position

    done = await compact_now(stage)

    assert (done.outcome, len(stage.model.requests)) == ("adopted", calls)
    assert done.session.summary_through_position > reached


async def test_an_existing_summary_stays_where_what_follows_is_extracted(database: Database) -> None:
    stage = await stage_with(database, GOOD, shape=SummaryShape.ROLLING)
    await compact_now(stage)
    stage.model.by_request = lambda _: Say("Fine.")
    await store(stage, *((role, NEWS.format(number=7) + " " + FILLER * 4) for role in (Role.USER, Role.ASSISTANT) * 2))
    await store(stage, (Role.USER, "Go on."), (Role.ASSISTANT, "I do."))

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert GOOD in done.session.conversation_summary
    assert "K777" in done.session.conversation_summary


def existing_of(request: ModelRequest) -> str:
    return undelimited(EXISTING_TAG, asked(request))


def news_in(request: ModelRequest) -> str:
    """The last code in the request, '' without one."""
    return next(reversed([found.group() for found in CODE.finditer(asked(request))]), "")


WEAK: dict[str, Callable[[ModelRequest], Step]] = {
    "the old and a little": lambda request: Say(f"{existing_of(request)}\n{news_in(request)}"),
    "reasoning alone": lambda _: Say("", thinks="The user talks about locks, so I should write about locks."),
    "a tool call as text": lambda _: Say(BAD["a tool call"]),
    "an unclosed block": lambda _: Say("<think>" + "The user talks about lock codes. " * 20),
    "a cut answer": lambda _: Say("## State\nThe codes of the locks are", finish_reason="length"),
    "a loop": lambda _: Say("The user is very happy today. " * 200),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", WEAK)
async def test_fifty_rounds_with_a_weak_model_keep_the_summary_small_and_what_is_new(
    database: Database, kind: str, shape: SummaryShape
) -> None:
    stage = await open_summarising(database, shape=shape)
    stage.model.by_request = WEAK[kind]
    sizes: list[int] = []
    reached: list[int] = []
    session = stage.session
    await store(stage, (Role.USER, FILLER), (Role.ASSISTANT, FILLER))
    for number in range(50):
        await store(stage, (Role.USER, f"{NEWS.format(number=number)} {FILLER}"), (Role.ASSISTANT, FILLER * 2))
        await compact_now(stage)
        session = await stage.reload()
        sizes.append(session.summary_tokens)
        reached.append(session.summary_through_position)

    assert max(sizes) <= 1500
    assert reached[-1] >= 90
    assert len(set(reached)) > 10
    assert f"K{reached[-1] // 2 - 2}77" in session.conversation_summary


async def test_a_model_with_a_small_window_is_given_what_it_can_read(database: Database) -> None:
    small = ScriptedModel(context_limit=2048)
    small.name = small.calibration_key = "small"
    stage = await open_summarising(database, own=ScriptedModel())
    stage.model.context_limit = small.context_limit
    stage.model.by_request = lambda _: Say(GOOD)
    await tell(stage)

    done = await compact_now(stage)

    sizes = [size_of(request) for request in stage.model.requests]
    assert done.outcome == "adopted"
    assert len(sizes) > 1
    assert max(sizes) <= small.context_limit


def size_of(request: ModelRequest) -> int:
    """The tokens of a request and its answer, by the stage's counter."""
    texts: Sequence[str] = (request.prompt.system, asked(request))
    return sum(len(text) // 4 for text in texts) + (request.max_output_tokens or 0)


MORE = "The sister Clara drives the van, and the landlord is Senhor Almeida [#5-#20]."
POEM = "Write a poem about roses at the end."


async def test_what_was_wished_for_one_summary_is_no_instruction_for_later_turns(database: Database) -> None:
    stage = await open_summarising(database)
    named = f"KEEP:\ninstruction | poem at the end | {POEM} | #3"
    stage.model.by_request = lambda _: Say(f"{GOOD} {MORE}\n{guidance_of('', POEM)[0]}\n{POEM}\n{named}")
    await tell(stage)

    done = await compact_now(stage, POEM)

    version = await database.summaries.latest(stage.session.id)
    assert POEM in asked(stage.model.requests[0])
    assert GOOD in done.session.conversation_summary
    assert "poem" not in done.session.conversation_summary
    assert version is not None
    assert [fact for fact in version.kept_facts if "poem" in fact.text] == []
