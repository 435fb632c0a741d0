"""The messages of one delivery that ask about calls: posted once for each call, and edited once it is decided.

Each message is recorded before it is posted, and again with the `ts` that Slack gave it, as those of an answer are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from throughline.domain.basic_types import JsonObject, JsonValue, RunId
from throughline.domain.elicitation import ASK_USER, call_of_question
from throughline.domain.message import Message, ToolCall, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import (
    OUTSIDE,
    ApprovalDecision,
    AwaitedCall,
    Question,
    Resolution,
    Wait,
    WaitKind,
    answered_question,
    read_question,
    readable_arguments,
)
from throughline.slack.answers.markdown import to_slack
from throughline.slack.answers.sent_messages import DeliveryServices, SentMessages, metadata_of
from throughline.slack.commands import escaped
from throughline.slack.store.outbox import AskedCall, Delivery, PartStatus
from throughline.slack.store.people import SlackId
from throughline.slack.web_api import TOKEN_ERRORS, SlackRefused, SlackUnsure, Thread

# Messages about calls of a waiting run, in Slack's Block Kit: what is asked, and what became of it. Arguments and
# answers stand in `rich_text` blocks, whose text Slack reads as it is: nothing in it mentions people or links. See
# https://docs.slack.dev/reference/block-kit/blocks/ .

MOST_ARGUMENTS = 2_500
MOST_QUESTION = 8_000
MOST_LINE = 2_500
MOST_LABEL = 75
"""Longest label of a button; Slack refuses a longer one."""

MOST_BUTTONS = 25
"""Most buttons of one block; further options are only listed."""

STOPS = ":octagonal_sign: stops the turn."
Block = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class CallMessage:
    """A message about a call. `text` is for notifications, and is shown where blocks cannot be."""

    text: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What became of a call: a line in Slack's mrkdwn, and what stands below it word for word, '' for nothing."""

    line: str
    below: str = ""


def ask_message(call: AwaitedCall, reader_id: str, until: datetime, key: str) -> CallMessage:
    """Return the message that asks the reader about the call; `key` begins the values of its buttons."""
    asked = f"<@{reader_id}>"
    if call.kind is WaitKind.ANSWER:
        question = read_question(call.arguments)
        line = f":question: {asked}, a question:"
        how = "Choose, or answer in this thread." if question.options else "Answer in this thread."
        note = f"{how} Until {when(until)}. {STOPS}"
        shown = [_section(line), _question(question), *_buttons(_options(question), key), _note(note)]
        return CallMessage(f"{asked}, a question waits for you", shown)
    line = f":raised_hand: {asked}, may `{_name(call)}` be run?"
    note = f"Messages here wait until this is decided, until {when(until)}. {STOPS}"
    buttons = _buttons([("approve", "Approve", "primary"), ("reject", "Reject", "danger")], key)
    return CallMessage(
        f"{asked}, {_name(call)} needs your approval", [_section(line), *_verbatim(call), *buttons, _note(note)]
    )


def ended_message(call: AwaitedCall, end: CallEnd) -> CallMessage:
    """Return the message that says what became of the call, in place of the question."""
    asked = [_question(read_question(call.arguments))] if call.kind is WaitKind.ANSWER else _verbatim(call)
    below = [_preformatted(_cut(end.below, MOST_ARGUMENTS))] if end.below.strip() else []
    return CallMessage(end.line, [*asked, _section(end.line), *below])


def key_of(run_id: RunId, number: int) -> str:
    """Return how the values of the buttons of message `number` about a call of the run begin."""
    return f"{run_id}:{number}"


def option_at(call: AwaitedCall, choice: str) -> str | None:
    """Return the option that a button stands for, None if the question has no such option."""
    options = read_question(call.arguments).options
    return options[int(choice)] if choice.isdecimal() and int(choice) < len(options) else None


def when(time: datetime) -> str:
    """Return a time that Slack shows in each reader's own time zone."""
    fallback = time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(time.timestamp())}^{{date_short_pretty}}, {{time}}|{fallback}>"


def _name(call: AwaitedCall) -> str:
    return escaped(call.name.replace("`", "'"))


def _options(question: Question) -> list[tuple[str, str, str]]:
    labels = [" ".join(option.split()) for option in question.options[:MOST_BUTTONS]]
    return [(str(number), _cut(label, MOST_LABEL), "") for number, label in enumerate(labels)]


def _question(question: Question) -> Block:
    """Return the question, with its options if a button cannot show one of them whole."""
    is_cut = len(question.options) > MOST_BUTTONS or any(len(option) > MOST_LABEL for option in question.options)
    listed = "".join(f"\n\n{number}. {option}" for number, option in enumerate(question.options, 1)) if is_cut else ""
    return {"type": "markdown", "text": to_slack(_cut(f"{question.text}{listed}", MOST_QUESTION))}


def _verbatim(call: AwaitedCall) -> list[Block]:
    arguments = readable_arguments(call.arguments)
    shown = _cut(arguments, MOST_ARGUMENTS)
    blocks = [_preformatted(shown)]
    if len(shown) < len(arguments):
        blocks.append(_note(f":warning: Only the beginning of {len(arguments):,} characters is shown."))
    return blocks


def _buttons(choices: Sequence[tuple[str, str, str]], key: str) -> list[Block]:
    """Return a block with a button for each choice, its label and its style; none without choices."""
    buttons: list[JsonValue] = [
        {
            "type": "button",
            "action_id": f"decide_{choice}",
            "text": {"type": "plain_text", "text": label, "emoji": False},
            "value": f"{key}:{choice}",
            **({"style": style} if style else {}),
        }
        for choice, label, style in choices
    ]
    return [{"type": "actions", "elements": buttons}] if buttons else []


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, MOST_LINE)}}


def _note(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _preformatted(text: str) -> Block:
    elements: list[JsonValue] = [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}]
    return {"type": "rich_text", "elements": elements}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
            return self._server_question(call_id)
        return AwaitedCall(call, WaitKind.ANSWER if call.name == ASK_USER else WaitKind.APPROVAL)

    def _server_question(self, call_id: str) -> AwaitedCall | None:
        wait, asked = self.run.wait, self._asked_before(call_id)
        known = None if wait is None else next((one for one in wait.calls if one.id == call_id), None)
        if known is not None or asked is None:
            return known
        return AwaitedCall(ToolCall(call_id, ASK_USER, json.dumps(asked)), WaitKind.ANSWER)

    def is_open(self, call_id: str) -> bool:
        """Return whether the run waits for this call."""
        wait = self.run.waiting_for
        return wait is not None and wait.kind_of(call_id) is not None

    def given(self, call_id: str) -> Resolution | None:
        """Return what the call was given, None if it expired or its run was cancelled or failed before."""
        known = None if self.run.wait is None else self.run.wait.resolution_for(call_id)
        asked = self._asked_before(call_id)
        if asked is not None and "answer" in asked:
            return Resolution(call_id, str(asked["answer"]), author=_text_or_none(asked.get("given_by")))
        stored = self._result(call_id)
        if known is not None or stored is None or stored.metadata.get(OUTSIDE) == EXPIRED:
            return known
        return _given_before(stored)

    def has_expired(self, call_id: str) -> bool:
        """Return whether nothing came for the call in time, so that its run went on without it."""
        stored, wait, asked = self._result(call_id), self.run.wait, self._asked_before(call_id)
        if asked is not None:
            return "answer" not in asked
        if stored is not None:
            return stored.metadata.get(OUTSIDE) == EXPIRED
        return wait is not None and wait.kind_of(call_id) is not None and wait.resolution_for(call_id) is None

    def at(self, call_id: str) -> datetime:
        """Return when the call's result was stored, or now if it is not stored yet."""
        stored = self._result(call_id) or self._result(call_of_question(call_id))
        return self.now if stored is None else stored.created_at

    def _asked_before(self, call_id: str) -> JsonObject | None:
        """Return a question of a tool's server, as the call's result has it, or its next question that waits."""
        asking = call_of_question(call_id)
        result, later = self._result(asking), None if self.run.wait is None else self.run.wait.question_for(asking)
        if result is not None:
            return answered_question(result.metadata, call_id)
        return None if later is None or later.paused is None else answered_question(later.paused.metadata, call_id)

    def _result(self, call_id: str) -> Message | None:
        return next((message for message in self.messages if message.tool_call_id == call_id), None)


def _given_before(stored: Message) -> Resolution:
    """Return what a call was given, read from its stored result."""
    told = stored.metadata
    decision, arguments = told.get("decision"), told.get("arguments")
    return Resolution(
        stored.tool_call_id or "",
        text_of(stored.content) if decision is None else str(told.get("reason", "")),
        decision=None if decision is None else ApprovalDecision(str(decision)),
        arguments=None if arguments is None else json.dumps(arguments),
        author=_text_or_none(told.get("given_by")),
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


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
        case ApprovalDecision.APPROVE:
            return CallEnd(f":white_check_mark: {who} approved {name}: {time}.")
        case ApprovalDecision.EDIT:
            edited = "" if given.arguments is None else readable_arguments(given.arguments)
            return CallEnd(f":white_check_mark: {who} approved {name} with other arguments: {time}.", edited)
        case ApprovalDecision.REJECT:
            return CallEnd(f":no_entry_sign: {who} rejected {name}: {time}.", given.text)
        case None:
            return CallEnd(f":speech_balloon: {who} answered: {time}.", given.text)


log = structlog.get_logger(__name__)


class AskedMessages:
    """Questions of one delivery about its run's calls."""

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        self._services, self._delivery = services, delivery
        self._asked = services.slack.asked
        self._messages = SentMessages(services, delivery)

    async def update(self, run: Run) -> None:
        """Ask about the open calls of the run that were not asked about yet, and say what became of all others.

        Raises LeaseLost and the errors of SlackWebApi.
        """
        asked = await self._asked.of(self._delivery.lease.id)
        await self._end_decided(run, [one for one in asked if one.is_open])
        wait = run.waiting_for
        if wait is not None:
            await self._ask_open(run, wait, asked)

    async def _end_decided(self, run: Run, asked: Sequence[AskedCall]) -> None:
        if not asked:
            return
        ids = {id_ for one in asked for id_ in (one.call_id, call_of_question(one.call_id))}
        messages = await self._asked.messages(run, ids)
        history = CallHistory(run, messages, self._services.clock.now())
        for one in asked:
            if not history.is_open(one.call_id):
                await self._end(history, one)

    async def _end(self, history: CallHistory, asked: AskedCall) -> None:
        """Edit the message to say what became of its call. One that was never posted is forgotten."""
        ts, call = asked.ts or await self._messages.find(asked.number), history.call(asked.call_id)
        if not ts:
            await self._asked.drop(self._delivery.lease, asked.number)
            return
        if call is not None:
            given = history.given(asked.call_id)
            who = await self._named(None if given is None else given.author)
            await self._edit(asked.number, ts, ended_message(call, end_of(history, call, who)))
        await self._services.outbox.note_part(self._delivery.lease, asked.number, ts, PartStatus.CLOSED)

    async def _edit(self, number: int, ts: str, shown: CallMessage) -> None:
        """Edit a message. One that can no longer be edited, or was deleted, stays as it is."""
        place, metadata = (self._delivery.channel_id, ts), metadata_of(self._delivery, number)
        try:
            await self._services.calls.update_blocks(place, shown.text, shown.blocks, metadata)
        except SlackRefused as error:
            if error.error in TOKEN_ERRORS:
                raise
            log.warning("slack edit of question refused, left unchanged", error=error.error)

    async def _ask_open(self, run: Run, wait: Wait, asked: Sequence[AskedCall]) -> None:
        known = {one.call_id: one for one in asked}
        number = -len(asked)
        approvals = [call for call in wait.calls if call.kind is WaitKind.APPROVAL]
        for call in (*approvals, *wait.shown_questions):
            found = known.get(call.id)
            if found is None:
                number -= 1
                await self._asked.begin(self._delivery.lease, number, call.id)
                await self._post(run, wait, call, number)
            elif not found.ts:
                await self._post(run, wait, call, found.number, ts=await self._messages.find(found.number))

    async def _post(self, run: Run, wait: Wait, call: AwaitedCall, number: int, *, ts: str | None = None) -> None:
        """Post the question, unless it was found under `ts`, and record it. Raises SlackUnsure if it may be posted."""
        shown = ask_message(call, self._delivery.reader_id, wait.until, key_of(run.id, number))
        if ts is None:
            ts = await self._posted(shown, number)
        await self._services.outbox.note_part(self._delivery.lease, number, ts, PartStatus.OPEN)

    async def _posted(self, shown: CallMessage, number: int) -> str:
        delivery = self._delivery
        thread = Thread(delivery.channel_id, delivery.thread_ts, delivery.reader_id, delivery.reader_team_id)
        try:
            return await self._services.calls.post_blocks(
                thread, shown.text, shown.blocks, metadata_of(delivery, number)
            )
        except SlackUnsure:
            ts = await self._messages.find(number)
            if ts is None:
                raise
            return ts

    async def _named(self, author: str | None) -> str:
        """Return the person who decided, as a mention if it is the one whom the message asked."""
        if author is None:
            return "Somebody"
        reader = SlackId(self._delivery.reader_team_id, self._delivery.reader_id)
        person = await self._services.slack.people.find(reader)
        is_reader = person is not None and person.user_name == author
        return f"<@{reader.user_id}>" if is_reader else escaped(author)
