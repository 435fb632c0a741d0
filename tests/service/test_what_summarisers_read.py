"""Seen from the provider's side: the cursor of a session never passes a message that no summariser has read."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.replay import main
from benchmarks.replay_check import Json, find_skipped, is_read
from chaos.check import check
from chaos.client_log import Answer, Sent
from chaos.findings import Fault
from chaos.messages import Name, answer_to, text_of
from chaos.stored import Stored, StoredEvent, StoredMessage, StoredRun, StoredSession, StoredSummary
from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptStep
from fakes.raw_sql import end_leases
from fakes.service_process import ServiceProcess, run_service
from fakes.waiting import HANG_SECONDS

NAMES = ("alder", "birch", "cedar")
RECENT = 2
AGENT = """\
name: {name}
system_prompt: You answer.
context:
  window: 2000
  max_messages_before_summary: {messages}
  min_recent_messages: {recent}
  summarize_chunk_size: 2
  summary: {{max_tokens: 200, timeout_seconds: 60, instructions: "Keep the {name}s."}}
"""
MANY_WORDS = "and another word " * 260
"""More than is left of the window beside ten messages of some words."""


@pytest.fixture
def settings(folder: Path, on_double: Mapping[str, str]) -> Mapping[str, str]:
    """One database, and for each name an agent whose summaries tell by their instructions whose they are."""
    (folder / "agents").mkdir()
    for name in NAMES:
        write_agent(folder, name, messages=4)
    return {**on_double, "AGENTS_DIR": str(folder / "agents")}


def write_agent(folder: Path, name: str, *, messages: int) -> None:
    (folder / "agents" / f"{name}.yaml").write_text(AGENT.format(name=name, messages=messages, recent=RECENT))


def summaries_of(name: str, double: ProviderDouble) -> list[Json]:
    """Return the summarisers' requests of the one session of agent `name`."""
    asked = (record for record in list(double.requests) if record.is_summary)
    return [record.as_json() for record in asked if f"Keep the {name}s." in str(record.prompt)]


async def judged_cursor(service: ServiceProcess, session: str, name: str, double: ProviderDouble) -> int:
    """Return where the cursor stands; everything behind it must have been read before."""
    answer = (await service.client.get(f"/v1/sessions/{session}")).raise_for_status()
    cursor = int(answer.json()["summarized_count"])
    assert find_skipped(cursor, summaries_of(name, double)) == [], f"skipped behind the cursor of {name} at {cursor}"
    return cursor


async def summarize(service: ServiceProcess, session: str) -> str:
    """Ask for a summary; return how that ended, or that another one is being written."""
    answer = await service.client.post(f"/v1/sessions/{session}/summarize")
    if answer.status_code == httpx.codes.CONFLICT:
        return "in progress"
    return str(answer.raise_for_status().json()["outcome"])


async def until_summarised(service: ServiceProcess, session: str, name: str, double: ProviderDouble) -> int:
    """Ask until only the newest messages are left; return the cursor."""
    count = len(await service.history(session))
    async with asyncio.timeout(HANG_SECONDS):
        while (cursor := await judged_cursor(service, session, name, double)) < count - RECENT:
            await summarize(service, session)
            await asyncio.sleep(0.05)
    return cursor


async def talk(services: Sequence[ServiceProcess], session: str, name: str, double: ProviderDouble) -> None:
    """Send a few turns, each to the next of the services, and look at the cursor after each."""
    for number in range(6):
        service = services[number % len(services)]
        (await service.send(session, f"{name} {number} " + "and another word " * 15)).raise_for_status()
        await judged_cursor(service, session, name, double)


async def summarize_during(
    talks: Sequence["asyncio.Task[None]"], services: Sequence[ServiceProcess], session: str
) -> set[str]:
    """Ask for summaries at each of the services while others talk; return how they ended."""
    outcomes = set()
    while not all(task.done() for task in talks):
        for service in services:
            outcomes.add(await summarize(service, session))
    return outcomes


@pytest.mark.slow
async def test_one_worker_moves_the_cursor_over_what_was_read_and_no_further(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, settings) as service:
        session = await service.new_session("alder")
        await talk([service], session, "alder", provider_double)
        cursor = await until_summarised(service, session, "alder", provider_double)

    assert cursor >= 12 - RECENT


@pytest.mark.slow
@pytest.mark.unpooled("two ways to summarise race, and each statement's further round trips let one of them win")
async def test_two_workers_that_summarise_the_same_sessions_at_once_skip_nothing(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, settings) as one, run_service(folder, settings) as two:
        sessions = {name: await one.new_session(name) for name in NAMES}
        async with asyncio.TaskGroup() as group:
            asking = []
            for name, session in sessions.items():
                orders = [(one, two), (two, one)]
                talks = [group.create_task(talk(order, session, name, provider_double)) for order in orders]
                asking.append(group.create_task(summarize_during(talks, (one, two), session)))
        cursors = [await until_summarised(two, sessions[name], name, provider_double) for name in NAMES]
        logs = one.log.read_text() + two.log.read_text()

    assert min(cursors) >= 24 - RECENT
    assert "adopted" in set.union(*(task.result() for task in asking)), "no summary on demand was used"
    assert "summary prepared" in logs, "no summary was written ahead"


@pytest.mark.slow
async def test_a_kill_between_two_segments_skips_nothing_and_pays_for_nothing_twice(
    folder: Path, settings: Mapping[str, str], provider_double: ProviderDouble, database_url: str
) -> None:
    write_agent(folder, "alder", messages=1000)
    provider_double.script(
        ScriptStep(text="## State\nThe first exchange was about stones [#1-#2]."),
        ScriptStep(failure=Failure.HANG),
        line=SUMMARISER,
        then_default=True,
    )
    async with run_service(folder, settings) as service:
        session = await imported(service, "alder", exchanges=5)
        sending = asyncio.create_task(service.send(session, MANY_WORDS))
        async with asyncio.timeout(HANG_SECONDS):
            while len(summaries_of("alder", provider_double)) < 2:
                assert not sending.done(), "the turn did not need a summary"
                await asyncio.sleep(0.02)
        await service.kill()
        await asyncio.gather(sending, return_exceptions=True)
    await end_leases(database_url)

    async with run_service(folder, settings) as service:
        async with asyncio.timeout(HANG_SECONDS):
            while len(await service.history(session)) < 12:
                await asyncio.sleep(0.05)
        cursor = await judged_cursor(service, session, "alder", provider_double)

    first, held, *later = summaries_of("alder", provider_double)
    assert cursor >= max(held["positions"])
    assert (is_read(first), is_read(held)) == (True, False)
    assert not [record for record in later if set(record["positions"]) & set(first["positions"])]
    assert [record for record in later if set(held["positions"]) <= set(record["positions"])]


async def imported(service: ServiceProcess, agent: str, *, exchanges: int) -> str:
    """Return a new session in which so much was said elsewhere."""
    said = [
        {"role": role, "content": f"{role} {number} " + "and another word " * 30}
        for number in range(exchanges)
        for role in ("user", "assistant")
    ]
    answer = await service.client.post("/v1/sessions/import", json={"agent": agent, "messages": said})
    return str(answer.raise_for_status().json()["id"])


FIRST, SECOND = (text_of(Name("talk", number)) for number in (1, 2))
Break = Callable[[Stored], Stored]
A_HOLE = StoredSummary("s", "adopted", 1, 4, 4, ((1, 1), (3, 4)))


def a_log() -> list[Sent]:
    log = []
    for number, text in enumerate((FIRST, SECOND), start=1):
        sent = Sent("s", key=f"k{number}", text=text, sent_at=10.0 * number)
        sent.accept({"id": f"r{number}"}, at=10.0 * number + 1)
        log.append(sent)
    log[0].answer = Answer("m4", 4, answer_to(FIRST))
    return log


def a_database() -> Stored:
    return Stored(
        sessions=(StoredSession("s", message_count=6, through_position=4),),
        messages=(
            StoredMessage("m1", "s", 1, "user", FIRST, "r1"),
            StoredMessage("m2", "s", 2, "assistant", "", "r1", calls=("c1",)),
            StoredMessage("m3", "s", 3, "tool", "42", "r1", answers="c1"),
            StoredMessage("m4", "s", 4, "assistant", answer_to(FIRST), "r1"),
            StoredMessage("m5", "s", 5, "user", SECOND, "r2"),
            StoredMessage("m6", "s", 6, "assistant", answer_to(SECOND), "r2"),
        ),
        runs=(
            StoredRun("r1", "s", 1, "succeeded", 1, "k1"),
            StoredRun("r2", "s", 2, "succeeded", 2, "k2"),
        ),
        events=tuple(
            StoredEvent(run, seq, kind, {})
            for run in ("r1", "r2")
            for seq, kind in enumerate(("run.started", "message.delta", "run.completed"), start=1)
        ),
        summaries=(
            StoredSummary("s", "superseded", 1, 2, 2, ((1, 2),)),
            StoredSummary("s", "adopted", 2, 4, 4, ((1, 2), (3, 4))),
        ),
    )


def without_message(position: int) -> Break:
    def broken(stored: Stored) -> Stored:
        kept = [message for message in stored.messages if message.position != position]
        moved = [replace(message, position=at) for at, message in enumerate(kept, start=1)]
        session = replace(stored.sessions[0], message_count=len(moved))
        return replace(stored, messages=tuple(moved), sessions=(session,))

    return broken


def with_message(index: int, **changes: object) -> Break:
    def broken(stored: Stored) -> Stored:
        messages = list(stored.messages)
        messages[index] = replace(messages[index], **changes)  # type: ignore[arg-type]  # the tests name real fields
        return replace(stored, messages=tuple(messages))

    return broken


def with_run(**changes: object) -> Break:
    def broken(stored: Stored) -> Stored:
        run = replace(stored.runs[1], **changes)  # type: ignore[arg-type]  # the same
        return replace(stored, runs=(stored.runs[0], run))

    return broken


def with_events(*numbered: tuple[int, str]) -> Break:
    def broken(stored: Stored) -> Stored:
        events = tuple(StoredEvent("r2", seq, kind, {}) for seq, kind in numbered)
        return replace(stored, events=(*stored.events[:3], *events))

    return broken


def with_summaries(*summaries: StoredSummary) -> Break:
    return lambda stored: replace(stored, summaries=summaries)


def faults_of(log: Sequence[Sent], stored: Stored) -> set[Fault]:
    return {finding.fault for finding in check(log, stored)}


def test_a_whole_database_has_no_findings() -> None:
    assert check(a_log(), a_database()) == ()


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        pytest.param(without_message(5), Fault.LOST, id="an accepted message is gone"),
        pytest.param(without_message(4), Fault.LOST, id="an answer that was told is gone"),
        pytest.param(with_message(5, position=5), Fault.GAP, id="a position is there twice"),
        pytest.param(with_message(5, role="user", content=SECOND), Fault.DUPLICATED, id="a message twice"),
        pytest.param(with_message(5, content=answer_to(SECOND)[:40]), Fault.ANSWER, id="half an answer"),
        pytest.param(with_message(2, answers="c2"), Fault.RESULT, id="a result for another call"),
        pytest.param(with_message(2, run_id="r2"), Fault.ORDER, id="turns that mix"),
        pytest.param(with_run(seq=0), Fault.ORDER, id="turns in another order than accepted"),
        pytest.param(with_run(status="running"), Fault.STUCK, id="a run that did not end"),
        pytest.param(with_run(status="failed", error="internal_error"), Fault.FAILED, id="a run that failed"),
        pytest.param(with_run(status="cancelled"), Fault.FAILED, id="a run nobody cancelled"),
        pytest.param(with_events((1, "run.started"), (3, "run.completed")), Fault.EVENTS, id="a gap in the events"),
        pytest.param(with_events((2, "run.started"), (3, "run.completed")), Fault.EVENTS, id="no first event"),
        pytest.param(with_events((1, "run.started"), (2, "message.delta")), Fault.EVENTS, id="events without an end"),
        pytest.param(with_summaries(), Fault.SUMMARY, id="a cursor without a summary"),
        pytest.param(with_summaries(A_HOLE), Fault.SUMMARY, id="a hole in a summary"),
    ],
)
def test_a_broken_promise_is_found(broken: Break, fault: Fault) -> None:
    assert fault in faults_of(a_log(), broken(a_database()))


def test_messages_that_no_summariser_was_shown_are_skipped() -> None:
    shown = {"line": "summariser", "verdict": "answered", "refusal": "", "is_whole": True}
    failed = {**shown, "verdict": "failed", "refusal": "reset"}

    assert find_skipped(5, [{**shown, "positions": [1, 2, 3]}, {**shown, "positions": [3, 4, 5, 6]}]) == []
    assert find_skipped(6, [{**shown, "positions": [1, 2, 3]}, {**shown, "positions": [5, 6]}]) == [4]
    assert find_skipped(3, [{**shown, "positions": [1, 2]}, {**failed, "positions": [3]}]) == [3]


DATASETS = "ubuntu-irc,openhands-events"
"""A talk of many with short turns, whose summaries are ready ahead; and few turns of many tool calls, where room is
made inside a turn and the stages fire. The other data sets are of these two kinds: `make bench` replays all of them."""


@pytest.mark.proof
@pytest.mark.slow
def test_real_conversations_of_three_windows_lose_nothing_and_never_overflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = main(["--quick", "--pause", "0.02", "--datasets", DATASETS, "--folder", str(tmp_path)])

    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert "every message there byte for byte" in printed
    compactions = [int(count) for count in re.findall(r", (\d+) compactions,", printed)]
    assert len(compactions) == 2
    assert min(compactions) >= 3, printed
