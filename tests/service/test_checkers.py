"""The checkers of crash tests can fail: each promise broken in a made-up database is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from benchmarks.replay_check import find_unread
from chaos.check import check
from chaos.client_log import Answer, Sent
from chaos.findings import Fault
from chaos.messages import Name, answer_to, text_of
from chaos.stored import Stored, StoredEvent, StoredMessage, StoredRun, StoredSession, StoredSummary

FIRST, SECOND = (text_of(Name("talk", number)) for number in (1, 2))
Break = Callable[[Stored], Stored]


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


def without_message(position: int, *, renumber: bool = True) -> Break:
    def broken(stored: Stored) -> Stored:
        kept = [message for message in stored.messages if message.position != position]
        if not renumber:
            return replace(stored, messages=tuple(kept))
        moved = [replace(message, position=at) for at, message in enumerate(kept, start=1)]
        session = replace(stored.sessions[0], message_count=len(moved))
        return replace(stored, messages=tuple(moved), sessions=(session,))

    return broken


def with_further(message: StoredMessage) -> Break:
    def broken(stored: Stored) -> Stored:
        session = replace(stored.sessions[0], message_count=stored.sessions[0].message_count + 1)
        return replace(stored, messages=(*stored.messages, message), sessions=(session,))

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


def with_second_run(run: StoredRun) -> Break:
    return lambda stored: replace(stored, runs=(*stored.runs, run))


def faults_of(log: Sequence[Sent], stored: Stored) -> set[Fault]:
    return {finding.fault for finding in check(log, stored)}


def test_a_whole_database_has_no_findings() -> None:
    assert check(a_log(), a_database()) == ()


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        pytest.param(without_message(5), Fault.LOST, id="an accepted message is gone"),
        pytest.param(without_message(4), Fault.LOST, id="an answer that was told is gone"),
        pytest.param(without_message(6, renumber=False), Fault.GAP, id="a position is missing"),
        pytest.param(with_message(5, position=5), Fault.GAP, id="a position is there twice"),
        pytest.param(
            with_further(StoredMessage("m7", "s", 7, "user", SECOND, "r2")), Fault.DUPLICATED, id="a message twice"
        ),
        pytest.param(
            with_further(StoredMessage("m7", "s", 7, "user", "chaos:x:1", "r3")), Fault.DUPLICATED, id="one never sent"
        ),
        pytest.param(
            with_second_run(StoredRun("r3", "s", 3, "succeeded", 1, "k2")), Fault.DUPLICATED, id="two runs of one key"
        ),
        pytest.param(
            with_further(StoredMessage("m7", "s", 7, "assistant", answer_to(SECOND), "r2")),
            Fault.ANSWER,
            id="two answers",
        ),
        pytest.param(with_message(5, content=answer_to(SECOND)[:40]), Fault.ANSWER, id="half an answer"),
        pytest.param(with_message(3, content="changed"), Fault.ANSWER, id="an answer changed after it was told"),
        pytest.param(with_message(2, answers="c2"), Fault.RESULT, id="a result for another call"),
        pytest.param(without_message(3), Fault.RESULT, id="a call without a result"),
        pytest.param(
            with_further(StoredMessage("m7", "s", 7, "tool", "42", "r1", answers="c1")), Fault.RESULT, id="two results"
        ),
        pytest.param(with_message(2, run_id="r2"), Fault.ORDER, id="turns that mix"),
        pytest.param(with_run(seq=0), Fault.ORDER, id="turns in another order than accepted"),
        pytest.param(with_run(status="running"), Fault.STUCK, id="a run that did not end"),
        pytest.param(with_run(status="queued"), Fault.STUCK, id="a run nobody took"),
        pytest.param(with_run(status="failed", error="internal_error"), Fault.FAILED, id="a run that failed"),
        pytest.param(
            with_run(status="failed", error="run_abandoned", attempt=2), Fault.FAILED, id="a run given up too early"
        ),
        pytest.param(with_run(status="cancelled"), Fault.FAILED, id="a run nobody cancelled"),
        pytest.param(with_events((1, "run.started"), (3, "run.completed")), Fault.EVENTS, id="a gap in the events"),
        pytest.param(with_events((1, "run.started"), (2, "message.delta")), Fault.EVENTS, id="events without an end"),
        pytest.param(with_events((1, "run.completed"), (2, "run.completed")), Fault.EVENTS, id="events that end twice"),
        pytest.param(with_summaries(), Fault.SUMMARY, id="a cursor without a summary"),
        pytest.param(
            with_summaries(StoredSummary("s", "adopted", 1, 4, 4, ((1, 1), (3, 4)))), Fault.SUMMARY, id="a hole in one"
        ),
        pytest.param(
            with_summaries(StoredSummary("s", "adopted", 1, 4, 5, ((1, 4),))), Fault.SUMMARY, id="another last message"
        ),
        pytest.param(
            with_summaries(StoredSummary("s", "adopted", 2, 4, 4, ((1, 4),))), Fault.SUMMARY, id="a version missing"
        ),
        pytest.param(
            with_summaries(
                StoredSummary("s", "adopted", 1, 4, 4, ((1, 4),)),
                StoredSummary("s", "prepared", None, 5, 5, ((1, 4), (5, 5))),
                StoredSummary("s", "prepared", None, 6, 6, ((1, 4), (5, 6))),
            ),
            Fault.SUMMARY,
            id="two prepared at once",
        ),
    ],
)
def test_a_broken_promise_is_found(broken: Break, fault: Fault) -> None:
    assert fault in faults_of(a_log(), broken(a_database()))


def test_messages_that_no_summariser_was_shown_are_unread() -> None:
    shown = {"line": "summariser", "verdict": "answered", "refusal": "", "is_whole": True}
    failed = {**shown, "verdict": "failed", "refusal": "reset"}

    assert find_unread(5, [{**shown, "positions": [1, 2, 3]}, {**shown, "positions": [3, 4, 5, 6]}]) == []
    assert find_unread(6, [{**shown, "positions": [1, 2, 3]}, {**shown, "positions": [5, 6]}]) == [4]
    assert find_unread(3, [{**shown, "positions": [1, 2]}, {**failed, "positions": [3]}]) == [3]
