"""What the model has seen: each call of each message, from when to when, and what summarisers were shown."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from chaos.findings import Fault, Finding
from chaos.stored import Stored

HEAD_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `kind` is answer, calls, summary or refused; `message` the name of the message it was made for.

    `shown` are the positions a summariser was shown, each with the head of its text; nothing where its answer did not
    go out whole.
    """

    message: str
    kind: str
    began: float
    ended: float
    shown: frozenset[tuple[int, str]] = frozenset()

    @property
    def conversation(self) -> str:
        """The conversation the message belongs to."""
        return self.message.rpartition(":")[0]


def read_calls(path: Path) -> tuple[Call, ...]:
    """Return the calls the double has written down, in the order they began."""
    if not path.exists():
        return ()
    calls = [json.loads(line) for line in path.read_text().splitlines()]
    return tuple(
        Call(
            message=call["message"],
            kind=call["kind"],
            began=call["began"],
            ended=call["ended"],
            shown=frozenset((position, head) for position, head in call["shown"]),
        )
        for call in sorted(calls, key=lambda call: float(call["began"]))
    )


def check_calls(calls: Iterable[Call], order: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Return what is wrong with turns as the model saw them: refused, at the same time, or in another order.

    `order` names the messages of each conversation as they were accepted.
    """
    findings = [Finding(Fault.ANSWER, f"the model refused: {call.message[:80]}") for call in calls if _is_refused(call)]
    seen: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.kind in {"answer", "calls"}:
            seen[call.conversation].append(call)
    for conversation, turns in seen.items():
        for earlier, later in pairwise(turns):
            if later.began < earlier.ended:
                findings.append(Finding(Fault.ORDER, f"{later.message} began before {earlier.message} ended"))
        executed = list(dict.fromkeys(call.message for call in turns))
        if conversation in order and executed != list(order[conversation]):
            findings.append(Finding(Fault.ORDER, f"{conversation} was not executed in the order of acceptance"))
    return tuple(findings)


def check_read(stored: Stored, calls: Iterable[Call]) -> tuple[Finding, ...]:
    """Return the messages behind a cursor that no summariser was shown in a call that was answered whole."""
    read = {line for call in calls for line in call.shown}
    cursors = {session.id: session.through_position for session in stored.sessions}
    return tuple(
        Finding(Fault.SKIPPED, f"session {message.session_id}: #{message.position} lies behind the cursor")
        for message in stored.messages
        if message.position <= cursors.get(message.session_id, 0)
        and (message.position, head_of(message.content)) not in read
    )


def head_of(text: str) -> str:
    """Return by what a text is told from others: the beginning of its first line."""
    return text.partition("\n")[0][:HEAD_CHARACTERS].strip()


def _is_refused(call: Call) -> bool:
    return call.kind == "refused"
