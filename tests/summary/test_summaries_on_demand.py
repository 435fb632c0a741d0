"""Summaries on demand: one at a time for a session, in all processes, and no connection is held meanwhile."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import chain

import pytest

from fakes.compactions import SUMMARY, asked, compact_now, fill, prepare_one
from fakes.pooler import urls_of
from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptStep, Verdict
from fakes.raw_sql import run_sql
from fakes.scripted_model import Break, Fail, Say, Step
from fakes.stage import Stage, agent_on, open_double_stage, open_stage, turn_requests, with_context
from fakes.waiting import HANG_SECONDS
from throughline.context.plan_context import plan_context
from throughline.context.policy import Adopt, SummaryPolicy
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.repository import SessionChange
from throughline.domain.errors import ModelRefused, ModelUnavailable, SummaryConflict, SummaryInProgress
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import RunStatus
from throughline.domain.summary import FactKind, SummaryState
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest, make_context_input
from throughline.turn.summary.compaction import Compaction, open_draft
from throughline.turn.summary.prepare import prepare_next
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now


@pytest.fixture
async def narrow(database_url: str) -> AsyncGenerator[Database]:
    """A pool of a single connection: a request that holds it while waiting stops all others."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1, pool_timeout_seconds=10))
    yield opened
    await opened.close()


@pytest.fixture
async def stage(narrow: Database) -> Stage:
    stage = await open_stage(narrow, agent=with_context(window=8192, min_recent_messages=2))
    await fill(stage, 6)
    return stage


async def until_asked(stage: Stage) -> None:
    while not stage.model.requests:
        await asyncio.sleep(0.01)


async def test_of_twenty_at_once_one_is_written_and_the_others_are_told_which(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say(SUMMARY, gate))
    session = await stage.reload()
    first = asyncio.create_task(summarize_now(stage.dependencies, session, SummaryRequest()))
    await until_asked(stage)

    others = await asyncio.gather(
        *(summarize_now(stage.dependencies, session, SummaryRequest()) for _ in range(19)), return_exceptions=True
    )
    gate.set()
    written = await first

    assert written.outcome == "adopted"
    assert len(stage.model.requests) == 1
    assert {type(other) for other in others} == {SummaryInProgress}
    assert len({other.summary_request_id for other in others if isinstance(other, SummaryInProgress)}) == 1


async def test_another_process_is_refused_too_until_the_first_has_ended(stage: Stage, database_url: str) -> None:
    gate = asyncio.Event()
    stage.model.script(Say(SUMMARY, gate))
    other = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1))
    first = asyncio.create_task(summarize_now(stage.dependencies, await stage.reload(), SummaryRequest()))
    await until_asked(stage)

    with pytest.raises(SummaryInProgress, match=str(stage.session.id)):
        await other.summaries.take_lease(stage.session.id, 10)
    with pytest.raises(SummaryInProgress, match=str(stage.session.id)):
        await other.summaries.check_lease_free(stage.session.id)
    gate.set()
    await first
    await other.summaries.check_lease_free(stage.session.id)
    taken = await other.summaries.take_lease(stage.session.id, 10)
    await other.close()

    assert taken.session_id == stage.session.id


async def test_one_that_breaks_lets_the_next_one_begin(stage: Stage) -> None:
    stage.model.script(Break(asyncio.CancelledError()), Say(SUMMARY))
    with pytest.raises(asyncio.CancelledError):
        await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    assert (await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())).outcome == "adopted"


async def test_what_a_dead_process_held_runs_out_and_its_late_words_change_nothing(
    stage: Stage, database_url: str
) -> None:
    summaries = stage.database.summaries
    dead = await summaries.take_lease(stage.session.id, 10)
    await run_sql(database_url, "update sessions set summarizing_until = now() - interval '1 second'")

    living = await summaries.take_lease(stage.session.id, 10)
    await summaries.renew_leases([dead], 10)
    await summaries.release_lease(dead)

    assert living.id != dead.id
    with pytest.raises(SummaryInProgress, match=str(living.id)):
        await summaries.take_lease(stage.session.id, 10)


async def test_a_lease_that_is_renewed_does_not_run_out(stage: Stage, database_url: str) -> None:
    summaries = stage.database.summaries
    lease = await summaries.take_lease(stage.session.id, 10)
    await run_sql(database_url, "update sessions set summarizing_until = now() - interval '1 second'")

    await summaries.renew_leases([lease], 10)

    with pytest.raises(SummaryInProgress):
        await summaries.take_lease(stage.session.id, 10)


async def test_one_that_is_asked_for_has_longer_than_a_turn_has(stage: Stage) -> None:
    def slowly(_: object) -> Step:
        stage.clock.advance(12)
        return Say(SUMMARY) if len(stage.model.requests) > 1 else Say("")

    stage.model.by_request = slowly

    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    assert (done.outcome, len(stage.model.requests)) == ("adopted", 2)


async def test_asked_for_again_it_says_what_is_summarised_already(stage: Stage) -> None:
    stage.model.script(Say(SUMMARY))
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    again = await summarize_now(stage.dependencies, done.session, SummaryRequest())

    assert (again.outcome, done.session.summary_through_position) == ("skipped", 10)
    assert again.detail.startswith("There is nothing new to summarize: messages up to #10 are summarized")


def told(request: ModelRequest) -> str:
    """A summary that cites what it was shown, and what was asked."""
    text = asked(request)
    places = [int(place) for place in re.findall(r"^\[#(\d+) ", text, re.MULTILINE)]
    has_more = "yes" if "Further wishes:" in text else "no"
    return f"## State\nRead [#{min(places)}-#{max(places)}], asked: {has_more}." if places else "## State\nMerged."


async def test_a_request_reaches_what_is_summarised_and_its_cost_is_told(stage: Stage) -> None:
    stage.model.by_request = lambda request: Say(told(request))
    before = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    paid = len(stage.model.requests)
    request = SummaryRequest("Keep the deadline and who owns it.")

    cost = await estimate_summary(stage.dependencies, await stage.reload(), request)
    asked_for_nothing = len(stage.model.requests) - paid
    done = await summarize_now(stage.dependencies, await stage.reload(), request)

    assert (before.outcome, done.outcome, asked_for_nothing) == ("adopted", "adopted", 0)
    assert done.session.summary_through_position == before.session.summary_through_position
    assert done.session.summary_version == before.session.summary_version + 1
    assert "asked: yes" in done.session.conversation_summary
    assert "asked: no" not in done.session.conversation_summary
    assert (cost.from_position, cost.through_position) == (1, done.session.summary_through_position)
    assert cost.message_count == done.session.summary_through_position
    assert (cost.calls, done.spent.calls) == (1, 1)
    assert cost.input_tokens > 0
    assert done.spent.input_tokens > 0


async def test_a_second_request_and_one_from_a_position_are_done_too(stage: Stage) -> None:
    stage.model.by_request = lambda request: Say(told(request))
    first = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    await fill(stage, 6)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    boundary = first.session.summary_through_position

    from_there = await summarize_now(
        stage.dependencies, await stage.reload(), SummaryRequest("Keep the price.", boundary + 2)
    )
    second = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep the place."))

    text = from_there.session.conversation_summary
    assert from_there.outcome == second.outcome == "adopted"
    assert f"Read [#1-#{boundary}], asked: no." in text
    assert f"Read [#{boundary + 1}-#" in text
    assert "asked: no" not in second.session.conversation_summary


async def test_what_was_read_again_in_vain_is_kept_and_the_summary_stays(stage: Stage) -> None:
    stage.model.by_request = lambda request: Say(told(request))
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    before = await stage.reload()
    stage.model.by_request = lambda _request: Fail(ModelUnavailable("The model is away."))

    failed = await summarize_now(stage.dependencies, before, SummaryRequest("Keep the price."))

    assert failed.outcome == "failed"
    assert failed.session.summary_through_position == before.summary_through_position
    assert (await stage.reload()).conversation_summary == before.conversation_summary


async def test_why_a_summary_was_refused_is_told_until_one_is_written(stage: Stage) -> None:
    stage.model.by_request = lambda _request: Fail(ModelRefused("no"))
    refused = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    told_then = (await report_context(stage.dependencies, await stage.reload())).summary_failure
    stage.model.by_request = lambda request: Say(told(request))
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    assert refused.outcome == "failed"
    assert told_then is not None
    assert told_then.reason == refused.detail != ""
    assert (await report_context(stage.dependencies, await stage.reload())).summary_failure is None


async def test_why_a_summary_written_ahead_was_refused_is_told_too(stage: Stage) -> None:
    await fill(stage, 12)
    stage.model.by_request = lambda _request: Fail(ModelRefused("no"))

    await prepare_next(stage.dependencies, await stage.reload())

    told_then = (await report_context(stage.dependencies, await stage.reload())).summary_failure
    assert told_then is not None
    assert told_then.reason


def answers(request: ModelRequest) -> Step:
    is_summariser = "You write the memory of a conversation" in request.prompt.system
    return Say("## Intent\nThe user counts [#1-#2].") if is_summariser else Say("noted " * 30)


async def turn_and_prepare(stage: Stage) -> None:
    await stage.turn("tell me more")
    await prepare_one(stage)


async def test_a_summary_that_extends_what_was_adopted_meanwhile_is_refused(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=8192, max_messages_before_summary=10))
    stage.model.by_request = answers
    await fill(stage, 10)
    await prepare_one(stage)
    agent, conversation = await at_rest(stage.dependencies, await stage.reload())
    before, plan = conversation.session, plan_context(make_context_input(agent, conversation, None))
    prepared = await stage.database.summaries.load_parts(before.id, SummaryState.PREPARED)
    assert prepared is not None
    await stage.database.summaries.adopt_prepared(before.id, prepared[0].id, before.summary_version)

    plan = replace(plan, decision=replace(plan.decision, through_position=before.message_count))
    for told in (conversation, replace(conversation, prepared=None)):
        task = Compaction(agent, told, plan)
        assert task.extends_prepared == (told.prepared is not None)
        with pytest.raises(SummaryConflict):
            await open_draft(stage.database.summaries, task)


async def test_an_instruction_inside_a_message_that_is_cut_for_the_summariser_is_kept(database: Database) -> None:
    agent = with_context(window=1200, min_recent_messages=2, max_messages_before_summary=1000)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = answers
    await stage.turn(f"{'word ' * 700}\nAlways answer in French from now on.\n{'word ' * 700}")
    await fill(stage, 3)

    assert (await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())).outcome == "adopted"

    adopted = await stage.database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert adopted is not None
    kept = [entry.text for entry in adopted[0].kept_facts if entry.kind is FactKind.INSTRUCTION]
    assert kept == ["Always answer in French from now on."]


async def test_after_a_failed_summary_a_job_writes_it_and_the_next_turn_has_it_for_nothing(database: Database) -> None:
    agent = with_context(
        window=4096,
        min_recent_messages=2,
        max_messages_before_summary=8,
        adopt=Adopt.IMMEDIATELY,
        summary=SummaryPolicy(timeout_seconds=HANG_SECONDS),
    )
    stage = await open_stage(database, agent=agent)
    is_away = True

    def by_request(request: ModelRequest) -> Step:
        is_summariser = "You write the memory of a conversation" in request.prompt.system
        return Fail(ModelUnavailable("away")) if is_summariser and is_away else answers(request)

    stage.model.by_request = by_request
    for number in range(5):
        await stage.turn(f"question {number}")
    assert (await stage.reload()).summary_through_position == 0
    is_away = False
    stage.dependencies.breakers.succeeded(stage.model.calibration_key)

    assert await prepare_one(stage)
    asked = len(stage.model.requests)
    await stage.turn("and now?")

    assert (await stage.reload()).summary_through_position > 0
    assert len(stage.model.requests) == asked + 1


async def test_what_a_session_asks_of_its_summaries_reaches_each_of_them(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=8192, min_recent_messages=2))
    stage.model.by_request = answers
    request = SessionChange(summary_instructions="Keep who owns the deadline.")
    changed = await stage.database.sessions.update(stage.owner_id, stage.session.id, request)
    for _ in range(2):
        await fill(stage, 6)
        await compact_now(stage)

    assert changed.summary_instructions == "Keep who owns the deadline."
    assert ["Further wishes: Keep who owns the deadline." in asked(one) for one in stage.model.requests] == [True, True]


async def test_what_was_restored_stays_until_there_is_news_for_another_summary(database: Database) -> None:
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=6, adopt=Adopt.IMMEDIATELY)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = answers
    while (await stage.reload()).summary_version < 3:
        await turn_and_prepare(stage)
    versions = (await stage.database.summaries.list(stage.owner_id, stage.session.id)).items
    restored = await stage.database.summaries.restore(stage.owner_id, stage.session.id, versions[-1].id)

    await stage.turn("and now?")
    after_one = await stage.reload()
    for _ in range(4):
        await turn_and_prepare(stage)

    assert (after_one.summary_version, after_one.summary_through_position) == (4, versions[-1].through_position)
    assert after_one.summary_through_position == restored.summary_through_position
    assert (await stage.reload()).summary_version == 5


async def test_what_was_restored_stays_above_the_threshold_until_there_is_growth(
    database: Database,
) -> None:
    agent = with_context(window=4096, min_recent_messages=2)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = answers
    while (await stage.reload()).summary_version < 3:
        await stage.turn("tell me more " + "word " * 60)
    versions = (await stage.database.summaries.list(stage.owner_id, stage.session.id)).items
    restored = await stage.database.summaries.restore(stage.owner_id, stage.session.id, versions[-1].id)
    asked = len(stage.model.requests)

    runs = [await stage.turn("and now?")]
    after_one = await stage.reload()
    while (await stage.reload()).summary_version == restored.summary_version and len(runs) < 20:
        runs.append(await stage.turn("tell me more " + "word " * 60))

    first = stage.model.requests[asked]
    assert (after_one.summary_version, after_one.summary_through_position) == (4, versions[-1].through_position)
    assert first.tools
    assert [run.status for run in runs] == [RunStatus.SUCCEEDED] * len(runs)
    assert 2 < len(runs) < 20
    assert (await stage.reload()).summary_through_position > versions[-1].through_position


async def read_in_turns(stage: Stage, double: ProviderDouble) -> tuple[int, set[int]]:
    """Prepare and adopt what a long history makes due; return where the summary ends, and the positions read."""
    await fill(stage, 40, words=400)
    for number in range(4):
        await prepare_one(stage)
        assert (await stage.turn(f"question {number}")).status is RunStatus.SUCCEEDED
    read = [record.positions for record in double.requests if record.is_summary and record.verdict == Verdict.ANSWERED]
    return (await stage.reload()).summary_through_position, set(chain.from_iterable(read))


@pytest.mark.slow
@pytest.mark.parametrize("is_refused", [False, True], ids=["2K window", "refused connection"])
async def test_nothing_is_covered_that_a_small_or_absent_summary_model_did_not_read(
    database: Database, provider_double: ProviderDouble, *, is_refused: bool
) -> None:
    address = "http://127.0.0.1:9/v1" if is_refused else provider_double.url
    policy = SummaryPolicy(model="openai:double-2k-cl100k", base_url=address, timeout_seconds=HANG_SECONDS)
    agent = agent_on(provider_double, "openai:double-40k-cl100k", min_recent_messages=2, summary=policy)
    async with open_double_stage(database, agent) as stage:
        through, read = await read_in_turns(stage, provider_double)

    assert {record.verdict for record in turn_requests(provider_double)} == {Verdict.ANSWERED}
    assert through > 60
    assert set(range(1, through + 1)) <= read


async def test_where_no_summary_can_be_written_nothing_is_covered(
    database: Database, provider_double: ProviderDouble
) -> None:
    policy = SummaryPolicy(model="openai:double-2k-cl100k", base_url="http://127.0.0.1:9/v1")
    agent = agent_on(provider_double, "openai:double-40k-cl100k", min_recent_messages=2, summary=policy)
    provider_double.script(*[ScriptStep(failure=Failure.SERVER_ERROR)] * 99, line=SUMMARISER)
    async with open_double_stage(database, agent) as stage:
        through, read = await read_in_turns(stage, provider_double)
    provider_double.drop_line(SUMMARISER)

    assert through == 0
    assert read == set()
    assert {record.verdict for record in turn_requests(provider_double)} == {Verdict.ANSWERED}
