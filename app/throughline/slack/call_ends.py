"""What became of calls that a waiting run asked about, in words for their messages in Slack."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.domain.arguments import readable_arguments
from throughline.domain.message import Message, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import ASK_USER
from throughline.domain.waiting import OUTSIDE, AwaitedCall, Decision, Resolution, WaitKind
from throughline.slack.blocks import escaped
from throughline.slack.call_blocks import CallEnd, when

EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class CallHistory:
    """A run and its stored messages, from which the end of a call is read at the time `now`."""

    run: Run
    messages: Sequence[Message]
    now: datetime

    def call(self, call_id: str) -> AwaitedCall | None:
        """Return the call with what it waits or waited for; None if its message is not stored."""
        calls = (call for message in self.messages for call in message.tool_calls if call.id == call_id)
        call = next(calls, None)
        if call is None:
            return None
        return AwaitedCall(call, WaitKind.ANSWER if call.name == ASK_USER else WaitKind.APPROVAL)

    def is_open(self, call_id: str) -> bool:
        """Return whether the run waits for this call."""
        wait = self.run.waiting_for
        return wait is not None and wait.kind_of(call_id) is not None

    def given(self, call_id: str) -> Resolution | None:
        """Return what the call was given, None if it expired or its run was cancelled or failed before."""
        known = None if self.run.wait is None else self.run.wait.resolution_for(call_id)
        stored = self._result(call_id)
        if known is not None or stored is None or stored.metadata.get(OUTSIDE) == EXPIRED:
            return known
        return _given_before(stored)

    def has_expired(self, call_id: str) -> bool:
        """Return whether nothing came for the call in time, so that its run went on without it."""
        stored, wait = self._result(call_id), self.run.wait
        if stored is not None:
            return stored.metadata.get(OUTSIDE) == EXPIRED
        return wait is not None and wait.kind_of(call_id) is not None and wait.resolution_for(call_id) is None

    def at(self, call_id: str) -> datetime:
        """Return when the call's result was stored, or now if it is not stored yet."""
        stored = self._result(call_id)
        return self.now if stored is None else stored.created_at

    def _result(self, call_id: str) -> Message | None:
        return next((message for message in self.messages if message.tool_call_id == call_id), None)


def _given_before(stored: Message) -> Resolution:
    """Return what a call was given, read from its stored result."""
    told = stored.metadata
    decision, arguments = told.get("decision"), told.get("arguments")
    return Resolution(
        stored.tool_call_id or "",
        text_of(stored.content) if decision is None else str(told.get("reason", "")),
        decision=None if decision is None else Decision(str(decision)),
        arguments=None if arguments is None else json.dumps(arguments),
        author=None if told.get("given_by") is None else str(told["given_by"]),
    )


def end_of(history: CallHistory, call: AwaitedCall, who: str) -> CallEnd:
    """Return what became of a call that is not open; `who` names, in Slack's mrkdwn, the person who decided."""
    given, name = history.given(call.id), f"`{escaped(call.name.replace('`', ''))}`"
    time = when(history.at(call.id))
    if given is None:
        if history.has_expired(call.id):
            return CallEnd(f":hourglass: Nothing came in time: {time}.")
        reason = "stopped" if history.run.status is RunStatus.CANCELLED else "over"
        return CallEnd(f":octagonal_sign: Nothing is needed any more, the turn is {reason}: {time}.")
    match given.decision:
        case Decision.APPROVE:
            return CallEnd(f":white_check_mark: {who} approved {name}: {time}.")
        case Decision.EDIT:
            edited = "" if given.arguments is None else readable_arguments(given.arguments)
            return CallEnd(f":white_check_mark: {who} approved {name} with other arguments: {time}.", edited)
        case Decision.REJECT:
            return CallEnd(f":no_entry_sign: {who} rejected {name}: {time}.", given.text)
        case None:
            return CallEnd(f":speech_balloon: {who} answered: {time}.", given.text)
