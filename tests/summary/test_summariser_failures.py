"""A summariser that is down, slow, over its own window or talks nonsense: what was achieved stays, no more moves."""

import pytest
from structlog.testing import capture_logs

from fakes.compactions import SUMMARY, asked, compact_now, fill, open_summarising, positions_read, store
from fakes.scripted_model import Call, Fail, Hang, Say, ScriptedModel, Step
from throughline.context.policy import SummaryKind, SummaryShape
from throughline.context.summaries.render_summary import CUT_MARK
from throughline.context.summaries.summary_prompt import EXISTING_TAG
from throughline.context.view.placeholder_texts import undelimited
from throughline.db.database import Database
from throughline.domain.errors import ContextOverflow, ModelQuotaExhausted, ModelRateLimited, ModelUnavailable
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.execution.breaker import FAILURES_TO_OPEN

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]
AWAY = Fail(ModelUnavailable("away"))
KEPT = "value | count | user 0 word | #1"


def says(text: str = SUMMARY) -> ScriptedModel:
    model = ScriptedModel()
    model.by_request = lambda _: Say(text)
    return model


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_summariser_that_calls_the_segment_too_long_is_given_less(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_summarising(database, shape=shape)
    stage.model.by_request = lambda request: (
        Fail(ContextOverflow("too long")) if len(positions_read([request])) > 5 else Say(SUMMARY)
    )
    await fill(stage, 9)

    done = await compact_now(stage)

    read = [request for request in stage.model.requests if len(positions_read([request])) <= 5]
    assert done.outcome == "adopted"
    assert positions_read(read) == list(range(1, 17))
    assert stage.dependencies.breakers.acquire("scripted")


async def test_a_window_too_small_for_one_message_gets_it_cut(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda request: (
        Fail(ContextOverflow("too long")) if len(asked(request)) > 2700 else Say(SUMMARY)
    )
    await fill(stage, 3, words=600)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert done.session.summary_through_position == 4


async def test_a_summariser_for_which_everything_is_too_long_moves_nothing(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Fail(ContextOverflow("too long"))
    await fill(stage, 6)

    done = await compact_now(stage)
    tries = len(stage.model.requests)
    for _ in range(4):
        await compact_now(stage)

    assert (done.outcome, (await stage.reload()).summary_through_position) == ("failed", 0)
    assert tries <= 4
    assert len(stage.model.requests) == tries * FAILURES_TO_OPEN


async def test_a_passing_failure_is_tried_again_once_after_what_the_provider_asked_for(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.script(Fail(ModelRateLimited("slow down", delay_seconds=3)), Say(SUMMARY))
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert stage.clock.slept == [3]


async def test_a_pause_longer_than_the_time_limit_is_not_waited_for(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.script(Fail(ModelRateLimited("slow down", delay_seconds=30)))
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "failed"
    assert stage.clock.slept == []
    assert (await stage.reload()).summary_through_position == 0


@pytest.mark.parametrize("failure", [AWAY, Fail(ModelQuotaExhausted("no credit")), Say("Error: 503"), Say(" ")])
async def test_where_the_summary_model_fails_the_agents_own_writes(database: Database, failure: Step) -> None:
    own = says("own words")
    stage = await open_summarising(database, own=own)
    stage.model.by_request = lambda _: failure
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert "own words" in (await stage.reload()).conversation_summary
    assert len(own.requests) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        Say(""),
        Say("I'm sorry, but I can't help with that."),
        Say("Error: 500 internal server error"),
        Call((ToolCall("c1", "calculator", "{}"),)),
        Call((ToolCall("c1", "calculator", "{}"),), text=SUMMARY),
    ],
)
async def test_nonsense_is_no_summary_and_what_needs_no_model_stands_for_the_messages(
    database: Database, nonsense: Step
) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: nonsense
    await fill(stage, 4)

    done = await compact_now(stage)

    session = await stage.reload()
    assert (done.outcome, session.summary_version, session.summary_through_position) == ("adopted", 1, 6)
    assert [row["reason"] for row in stage.metrics.of("summary_unused")] == 2 * ["summary_rejected"]
    assert [row["model"] for row in stage.metrics.of("summary_written")] == ["scripted", "scripted", "offline"]


@pytest.mark.parametrize("second", [Say(f"KEEP:\n{KEPT}"), Say(f"{SUMMARY}\nKEEP:\n{KEPT}")])
async def test_lines_to_keep_without_a_summary_above_them_are_asked_for_again(database: Database, second: Say) -> None:
    stage = await open_summarising(database)
    stage.model.script(Say(f"KEEP:\n{KEPT}"), second)
    await fill(stage, 4)

    done = await compact_now(stage)

    version = await database.summaries.latest(stage.session.id)
    assert (done.outcome, len(stage.model.requests)) == ("adopted", 2)
    assert version is not None
    assert version.model == ("offline" if second.text.startswith("KEEP") else "scripted")
    assert any(fact.text.startswith("user 0 word") for fact in version.kept_facts)


async def test_a_summary_that_is_too_long_is_cut(database: Database) -> None:
    stage = await open_summarising(database, max_tokens=100, kind=SummaryKind.LLM)
    stage.model.by_request = lambda _: Say("One sentence of many words. " * 30)
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert 50 < (await stage.reload()).summary_tokens <= 100


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS"])
async def test_an_answer_that_met_its_limit_ends_with_its_last_whole_sentence(database: Database, reason: str) -> None:
    stage = await open_summarising(database)
    text = "## State\nAda moved [#1]. She decided not to delete the production database but"
    stage.model.by_request = lambda _: Say(text, finish_reason=reason)
    await fill(stage, 4)

    await compact_now(stage)

    assert f"Ada moved [#1].{CUT_MARK}" in (await stage.reload()).conversation_summary


async def test_nothing_is_left_of_an_answer_that_broke_off_in_its_first_sentence(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say("## State\nShe decided not to delete the", finish_reason="length")
    await fill(stage, 4)

    done = await compact_now(stage)

    assert "She decided" not in done.session.conversation_summary


async def test_a_summariser_that_never_stops_is_hung_up_on(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say(" ".join(["word" * 5000] * 100))
    await fill(stage, 4)

    done = await compact_now(stage)

    assert done.outcome == "failed"
    assert [row["reason"] for row in stage.metrics.of("summary_failed")] == ["answer_too_long"]


@pytest.mark.parametrize(("again", "kept"), [("Nothing of it was decided.", "Nothing of it"), (SUMMARY, SUMMARY)])
async def test_a_rolling_summary_that_comes_back_unchanged_is_asked_for_again_and_believed(
    database: Database, again: str, kept: str
) -> None:
    stage = await open_summarising(database, shape=SummaryShape.ROLLING)
    stage.model.by_request = lambda _: Say(SUMMARY if len(stage.model.requests) < 3 else again)
    await fill(stage, 4)
    await compact_now(stage)
    await store(stage, (Role.USER, " ".join(f"detail{number}" for number in range(40))), (Role.ASSISTANT, "noted"))
    await fill(stage, 1)

    done = await compact_now(stage)

    assert (done.outcome, len(stage.model.requests)) == ("adopted", 3)
    assert kept in (await stage.reload()).conversation_summary


async def test_positions_nobody_read_are_not_stored(database: Database) -> None:
    stage = await open_summarising(database, chunk_messages=4)
    stage.model.by_request = lambda _: Say("The user counts [#5-#8], then rests [#9000].")
    await fill(stage, 5)

    await compact_now(stage)

    text = (await stage.reload()).conversation_summary
    assert "[#1-#4]\nThe user counts, then rests." in text
    assert "[#5-#8]\nThe user counts [#5-#8], then rests." in text


async def test_a_summary_no_smaller_than_what_it_replaces_is_skipped_and_no_failure(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say("".join(f"A sentence {number:04d} says nothing. " for number in range(60)))
    await fill(stage, 2, words=5)

    for _ in range(4):
        assert (await compact_now(stage)).outcome == "skipped"

    assert len(stage.model.requests) == 4
    assert stage.metrics.of("summary_failed") == []
    assert (await stage.reload()).summary_version == 0


async def test_what_was_achieved_before_the_time_was_up_is_adopted(database: Database) -> None:
    stage = await open_summarising(database, chunk_messages=4, timeout_seconds=3)
    stage.model.script(Say(SUMMARY), Hang("## Int"))
    await fill(stage, 5)

    done = await compact_now(stage)

    assert (done.outcome, done.session.summary_through_position) == ("adopted", 4)
    assert done.detail == "It reaches #4; up to #8 is left for the next one. The time for it, 3 seconds, was up."
    assert [row["reason"] for row in stage.metrics.of("summary_failed")] == ["too_slow"]


async def test_the_log_says_what_the_summarisers_provider_said(database: Database) -> None:
    stage = await open_summarising(database)
    refused = ModelUnavailable("away")
    refused.provider_message = "the pool has no worker left"
    stage.model.by_request = lambda _: Fail(refused)
    await fill(stage, 6)

    with capture_logs() as logs:
        await compact_now(stage)

    told = {entry["event"] for entry in logs if entry.get("provider_message") == refused.provider_message}
    assert {"summary call retried", "summary call given up", "summary failed"} <= told


def repeats(request: ModelRequest, round_number: int, *, is_limited: bool) -> Say:
    """Answer with the whole existing summary and two new sentences behind it, limited as a provider limits it."""
    existing = undelimited(EXISTING_TAG, asked(request))
    steps = " ".join(f"{round_number}s{part}" for part in range(40))
    words = f"{existing}\nIn round {round_number} the user went {steps}. It was day {round_number}.".split(" ")
    shown = words[:300] if is_limited else words
    return Say(" ".join(shown), finish_reason="stop" if shown == words else "length")


@pytest.mark.slow
@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_summariser_that_repeats_its_input_grows_no_summary_and_hides_no_news(
    database: Database, shape: SummaryShape, *, is_limited: bool
) -> None:
    stage = await open_summarising(database, shape=shape)
    await fill(stage, 1)
    sizes, covered = [], 0
    for number in range(50):
        stage.model.by_request = lambda request, number=number: repeats(request, number, is_limited=is_limited)
        said = " ".join(f"detail{number}x{part}" for part in range(40))
        await store(stage, (Role.USER, said), (Role.ASSISTANT, "noted " * 60))
        await compact_now(stage)
        session = await stage.reload()
        sizes.append(session.summary_tokens)
        is_told = any(news in session.conversation_summary for news in (f"day {number}.", f"detail{number - 1}x0 "))
        assert session.summary_through_position == covered or is_told
        covered = session.summary_through_position

    assert max(sizes) <= 1500
