"""What a summary is made of: the rows it says, all of their text, and nothing that another process has moved."""

from itertools import chain

import pytest

from fakes.compactions import asked, compact_now, fill, prepare_one
from fakes.double_stage import agent_on, open_double_stage, turn_requests
from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptStep, Verdict
from fakes.scripted_model import Fail, Say, Step
from fakes.stage import Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS
from throughline.context.policy import Adopt, SummaryPolicy
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.errors import ModelUnavailable, SummaryConflict
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import RunStatus
from throughline.domain.summary import FactKind, SummaryState
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.summary.summary_draft import open_draft


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
    before = await stage.reload()
    prepared = await stage.database.summaries.load_parts(before.id, SummaryState.PREPARED)
    assert prepared is not None
    await stage.database.summaries.adopt_prepared(before.id, prepared.version.id, before.summary_version)

    for extends_prepared in (True, False):
        with pytest.raises(SummaryConflict):
            await open_draft(stage.database.summaries, before, len, lease=None, extends_prepared=extends_prepared)


async def test_an_instruction_inside_a_message_that_is_cut_for_the_summariser_is_kept(database: Database) -> None:
    agent = with_context(window=1200, min_recent_messages=2, max_messages_before_summary=1000)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = answers
    await stage.turn(f"{'word ' * 700}\nAlways answer in French from now on.\n{'word ' * 700}")
    await fill(stage, 3)

    assert (await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())).outcome == "adopted"

    adopted = await stage.database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert adopted is not None
    kept = [entry.text for entry in adopted.version.kept_facts if entry.kind is FactKind.INSTRUCTION]
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


async def test_what_a_session_wishes_of_its_summaries_reaches_each_of_them(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=8192, min_recent_messages=2))
    stage.model.by_request = answers
    wish = SessionChange(summary_instructions="Keep who owns the deadline.")
    changed = await stage.database.sessions.update(stage.owner_id, stage.session.id, wish)
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
