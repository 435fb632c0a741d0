"""The checker: holds what the clients know against what the database holds. Reads nothing else, repairs nothing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from chaos.client_log import ClientLog, Sent
from chaos.findings import Fault, Finding
from chaos.messages import answer_to
from chaos.stored import Stored, StoredJob, StoredMessage, StoredRun, StoredSession, StoredSummary
from throughline.db.runs.events import STRIDE

ABANDONED = "run_abandoned"
MOST_ATTEMPTS = 3
Item = TypeVar("Item")
LAST_EVENTS = {"run.completed", "run.failed", "run.cancelled"}


def check(log: ClientLog, stored: Stored, *, has_events: bool = True) -> tuple[Finding, ...]:
    """Return every broken promise. To be called when all is quiet: what has not ended by then counts as stuck.

    `has_events` is False where the database crashed: the table of events is empty then, by design.
    """
    found = (
        *_messages_of_clients(log, stored),
        *_positions(stored),
        *_turns(stored),
        *_order(log, stored),
        *_summaries(stored),
    )
    return (*found, *(_events(stored) if has_events else ()))


def check_jobs(jobs: Iterable[StoredJob]) -> tuple[Finding, ...]:
    """Return what is wrong with side jobs once all had time to end: what is left of them is stuck, or failed."""
    findings: list[Finding] = []
    for job in jobs:
        told = f"job {job.id} ({job.kind}), begun {job.attempts} times"
        match job.status:
            case "picked":
                held = f"is held by a process silent for {job.silent_seconds:.0f} s"
                findings.append(Finding(Fault.STUCK, f"{told}, {held}"))
            case "queued":
                findings.append(Finding(Fault.STUCK, f"{told}, was not taken"))
            case _:
                findings.append(Finding(Fault.FAILED, f"{told}, ended as {job.status}"))
    return tuple(findings)


def _messages_of_clients(log: ClientLog, stored: Stored) -> Iterator[Finding]:
    """What was accepted is there once, an answer as it was told; what was not accepted is there once at most."""
    by_text = _grouped((message for message in stored.messages if message.role == "user"), lambda m: m.content)
    by_id = {message.id: message for message in stored.messages}
    by_key = Counter((run.session_id, run.key) for run in stored.runs if run.key)
    for sent in log:
        copies = by_text.get(sent.text, ())
        if sent.is_accepted and not copies:
            yield Finding(Fault.LOST, f"message {sent.text[:30]!r} was accepted and is not stored")
        if len(copies) > 1 or by_key[sent.session_id, sent.key] > 1:
            yield Finding(Fault.DUPLICATED, f"message {sent.text[:30]!r} is stored {len(copies)} times")
        yield from _told_answer(sent, by_id)
    known = {sent.text for sent in log}
    for text in by_text.keys() - known:
        yield Finding(Fault.DUPLICATED, f"message {text[:30]!r} was never sent")


def _told_answer(sent: Sent, by_id: Mapping[str, StoredMessage]) -> Iterator[Finding]:
    told = sent.answer
    if told is None:
        return
    kept = by_id.get(told.id)
    if kept is None:
        yield Finding(Fault.LOST, f"the answer to {sent.text[:30]!r} was told and is not stored")
    elif (kept.position, kept.content, kept.run_id) != (told.position, told.content, sent.run_id):
        yield Finding(Fault.ANSWER, f"the answer to {sent.text[:30]!r} was changed after it was told")
    if told.content != answer_to(sent.text):
        yield Finding(Fault.ANSWER, f"the answer to {sent.text[:30]!r} is another one: {told.content[:60]!r}")


def _positions(stored: Stored) -> Iterator[Finding]:
    """In each session the positions are 1 to its count, each once."""
    by_session = _grouped(stored.messages, lambda message: message.session_id)
    for session in stored.sessions:
        positions = sorted(message.position for message in by_session.get(session.id, ()))
        if positions != list(range(1, session.message_count + 1)):
            missing = sorted(set(range(1, session.message_count + 1)) - set(positions))
            yield Finding(Fault.GAP, f"session {session.id}: {session.message_count} counted, missing {missing[:5]}")


def _turns(stored: Stored) -> Iterator[Finding]:
    """Every run has ended, and left one user message, one result for each call, and one answer, in that order."""
    by_run = _grouped(stored.messages, lambda message: message.run_id)
    for run in stored.runs:
        rows = by_run.get(run.id, ())
        yield from _ending(run)
        yield from _tool_results(run, rows)
        yield from _shape(run, rows)


def _ending(run: StoredRun) -> Iterator[Finding]:
    if run.status in {"queued", "running"}:
        yield Finding(Fault.STUCK, f"run {run.id} is {run.status} after attempt {run.attempt}")
    elif run.status == "failed" and not (run.error == ABANDONED and run.attempt > MOST_ATTEMPTS):
        yield Finding(Fault.FAILED, f"run {run.id} failed: {run.error}")
    elif run.status == "cancelled":
        yield Finding(Fault.FAILED, f"run {run.id} was cancelled, and nobody asked for it")


def _tool_results(run: StoredRun, rows: Sequence[StoredMessage]) -> Iterator[Finding]:
    """Each call has one result, behind it; no result is without a call. A run that failed may owe some."""
    results = Counter(row.answers for row in rows if row.role == "tool")
    calls = [call for row in rows for call in row.calls]
    for call in calls:
        if results[call] > 1 or (results[call] == 0 and run.status == "succeeded"):
            yield Finding(Fault.RESULT, f"run {run.id}: call {call} has {results[call]} results")
    for unasked in results.keys() - set(calls):
        yield Finding(Fault.RESULT, f"run {run.id}: a result for {unasked!r}, which was not called")


def _shape(run: StoredRun, rows: Sequence[StoredMessage]) -> Iterator[Finding]:
    positions = [row.position for row in rows]
    if positions and positions != list(range(positions[0], positions[0] + len(positions))):
        yield Finding(Fault.ORDER, f"run {run.id}: its messages stand apart: {positions[:10]}")
    users = [row for row in rows if row.role == "user"]
    answers = [row for row in rows if row.role == "assistant" and not row.calls]
    if len(users) > 1 or (users and rows[0] is not users[0]):
        yield Finding(Fault.DUPLICATED, f"run {run.id} has {len(users)} user messages, or not at its beginning")
    if run.status != "succeeded":
        return
    if not users:
        yield Finding(Fault.LOST, f"run {run.id} succeeded without its user message")
    elif len(answers) != 1 or rows[-1] is not answers[0]:
        yield Finding(Fault.ANSWER, f"run {run.id} has {len(answers)} answers, or one that is not its end")
    elif answers[0].content != answer_to(users[0].content):
        yield Finding(Fault.ANSWER, f"run {run.id}: not the answer to its message: {answers[0].content[:60]!r}")


def _order(log: ClientLog, stored: Stored) -> Iterator[Finding]:
    """Turns stand in the order of acceptance, which is one the clients could see."""
    first = {run_id: rows[0].position for run_id, rows in _grouped(stored.messages, lambda m: m.run_id).items()}
    accepted = {run.id: run.seq for run in stored.runs}
    for session_id, runs in _grouped(stored.runs, lambda run: run.session_id).items():
        positions = [first[run.id] for run in sorted(runs, key=lambda run: run.seq) if run.id in first]
        if positions != sorted(positions):
            yield Finding(Fault.ORDER, f"session {session_id}: turns were not executed as they were accepted")
    for sents in _grouped(log, lambda sent: sent.session_id).values():
        yield from _seen_order(sents, accepted)


def _seen_order(sents: Sequence[Sent], accepted: Mapping[str, int]) -> Iterator[Finding]:
    """Whose message was accepted before another one was sent stands before it."""
    told = [sent for sent in sents if sent.run_id in accepted]
    for earlier in told:
        for later in told:
            is_before = earlier.accepted_at is not None and earlier.accepted_at < later.sent_at
            if is_before and accepted[earlier.run_id] > accepted[later.run_id]:
                yield Finding(Fault.ORDER, f"{later.text[:30]!r} stands before {earlier.text[:30]!r}, sent after it")


def _summaries(stored: Stored) -> Iterator[Finding]:
    """Each version stands for 1 to its end without a gap; one is adopted, and the cursor is its end.

    One at most is prepared.
    """
    by_session = _grouped(stored.summaries, lambda summary: summary.session_id)
    for session in stored.sessions:
        versions = by_session.get(session.id, ())
        for version in versions:
            yield from _version(version)
        prepared = [version.through_position for version in versions if version.state == "prepared"]
        if len(prepared) > 1:
            yield Finding(Fault.SUMMARY, f"session {session.id}: prepared {prepared}, one at most may be")
        yield from _cursor(session, versions)


def _version(version: StoredSummary) -> Iterator[Finding]:
    told = f"session {version.session_id}, version {version.version or 'prepared'}"
    if version.through_id_position != version.through_position:
        yield Finding(Fault.SUMMARY, f"{told}: its last message stands at {version.through_id_position}")
    reach = 0
    for first, last in version.segments:
        if first != reach + 1:
            yield Finding(Fault.SUMMARY, f"{told}: a segment begins at {first} behind {reach}")
        reach = last
    if reach != version.through_position:
        yield Finding(Fault.SUMMARY, f"{told}: reaches {reach}, says {version.through_position}")


def _cursor(session: StoredSession, versions: Sequence[StoredSummary]) -> Iterator[Finding]:
    adopted = [version for version in versions if version.state == "adopted"]
    reach = [version.through_position for version in adopted]
    if reach != ([session.through_position] if session.through_position else []):
        yield Finding(Fault.SUMMARY, f"session {session.id}: cursor {session.through_position}, adopted {reach}")
    numbers = sorted(version.version for version in versions if version.version is not None)
    if numbers != list(range(1, len(numbers) + 1)):
        yield Finding(Fault.SUMMARY, f"session {session.id}: versions {numbers}")


def _events(stored: Stored) -> Iterator[Finding]:
    """The events of an ended run are numbered without a gap, and end once, with its end."""
    by_run = _grouped(stored.events, lambda event: event.run_id)
    for run in stored.runs:
        if run.status in {"queued", "running"}:
            continue
        events = by_run.get(run.id, ())
        if not has_no_gap([event.seq for event in events]):
            yield Finding(Fault.EVENTS, f"run {run.id}: numbers {[event.seq for event in events][:12]}")
        ends = [event for event in events if event.type in LAST_EVENTS]
        if len(ends) != 1 or events[-1] is not ends[0]:
            yield Finding(Fault.EVENTS, f"run {run.id}: {len(ends)} last events among {len(events)}")


def has_no_gap(numbers: Sequence[int]) -> bool:
    """Return whether event numbers follow each other, from 1 or behind those of holders that stored nothing."""
    return not numbers or (numbers[0] % STRIDE == 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)))


def _grouped(items: Iterable[Item], key: Callable[[Item], str]) -> dict[str, tuple[Item, ...]]:
    groups: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return {name: tuple(group) for name, group in groups.items()}
