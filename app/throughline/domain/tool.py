"""The context that a tool receives with a call, and the result that it returns."""

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NoReturn

from throughline.domain.basic_types import JsonObject, JsonValue, MessageId, RunId, SessionId, UserId
from throughline.domain.elicitation import DECLINE, QUESTIONS_KEY, PausedCall, call_of_question, read_input
from throughline.domain.errors import InvalidInput, RunNotWaiting
from throughline.domain.message import ImageBlock, Message, ToolCall, clean_text, text_of

# What a waiting run waits for from outside: results of client tools, approvals and answers to questions.
#
# A run waits after a step whose tool calls the service may not run, or not yet. It holds no slot and no lease
# meanwhile.

MAX_OUTPUT = 1_000_000
"""Longest result of a client's tool, or answer of a person, in characters."""

MAX_REASON = 4_000
"""Longest reason of a rejection, in characters."""

OUTSIDE = "outside"
"""Key in the metadata of a tool's result whose call waited: its WaitKind, or `expired`."""


class WaitKind(StrEnum):
    """What a tool call waits for.

    - TOOL_RESULT: the result of a tool that the client runs itself.
    - APPROVAL: a person's decision whether the service may run the call.
    - ANSWER: a person's answer to a question of the model, or of a tool's server.
    """

    TOOL_RESULT = "tool_result"
    APPROVAL = "approval"
    ANSWER = "answer"


class ApprovalDecision(StrEnum):
    """A person's decision on a call that needs approval: run it, run it with other arguments, or do not run it."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class AwaitedCall:
    """A tool call that waits, and for what.

    A question of an MCP server is a call of `ask_user` that no model made. `server` is that server's name, None for
    calls of the model. `paused` is the call for which the server asks, None in events.
    """

    call: ToolCall
    kind: WaitKind
    paused: PausedCall | None = None
    server: str | None = None

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def arguments(self) -> str:
        """The arguments, as the model wrote them."""
        return self.call.arguments


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a waiting call was given from outside.

    `text` is the client's result, the person's answer, or the reason of a rejection ('' if none was given). `is_error`
    marks a client's result as a failure. `decision` is set for approvals only, `arguments` (JSON text) only for
    ApprovalDecision.EDIT. `author` names who gave it, None if the request named nobody.
    """

    call_id: str
    text: str = ""
    is_error: bool = False
    decision: ApprovalDecision | None = None
    arguments: str | None = None
    author: str | None = None

    @property
    def answer(self) -> str:
        """The answer to a question of a tool's server."""
        return DECLINE if self.is_error else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a call that waits for an answer, and the answers to choose from, none if any will do."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewWait:
    """The start of a wait: the calls, the stored message that makes them, and the time at which the wait expires.

    `earlier`: earlier resolutions of calls that wait again.
    """

    calls: tuple[AwaitedCall, ...]
    message_id: MessageId
    until: datetime
    earlier: tuple[Resolution, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The last wait of an unfinished run, kept until the run waits again or ends.

    `fence` is that of the lease under which the run began to wait. `resolutions` are those of its calls and, so that a
    repeated request is known, earlier ones of calls that wait again.
    """

    calls: tuple[AwaitedCall, ...]
    until: datetime
    fence: int
    resolutions: tuple[Resolution, ...] = ()

    @property
    def open_calls(self) -> tuple[AwaitedCall, ...]:
        """The calls that were given nothing yet."""
        given = {resolution.call_id for resolution in self.resolutions}
        return tuple(awaited for awaited in self.calls if awaited.id not in given)

    @property
    def shown_questions(self) -> tuple[AwaitedCall, ...]:
        """The open questions that one text may answer.

        If the server of a tool asks, it is the first question alone, so that no other server gets its answer.
        """
        questions = tuple(awaited for awaited in self.open_calls if awaited.kind is WaitKind.ANSWER)
        return questions[:1] if any(one.paused is not None for one in questions) else questions

    def kind_of(self, call_id: str) -> WaitKind | None:
        """Return what the call waited for, None if the wait has no such call."""
        return next((awaited.kind for awaited in self.calls if awaited.id == call_id), None)

    def question_for(self, call_id: str) -> AwaitedCall | None:
        """Return the question that the server of the call's tool asks, None if it asks nothing."""
        return next((one for one in self.calls if one.paused is not None and one.paused.call.id == call_id), None)

    def has_any_call(self, given: Sequence[Resolution]) -> bool:
        """Return whether at least one of the resolutions is for a call of this wait."""
        return any(self.kind_of(one.call_id) is not None for one in given)

    def resolution_for(self, call_id: str) -> Resolution | None:
        """Return what the call was given, None if nothing."""
        return next((given for given in self.resolutions if given.call_id == call_id), None)


def given_before(last: Wait | None, waiting: Iterable[AwaitedCall]) -> tuple[Resolution, ...]:
    """Return the resolutions that the run's last wait has for calls that wait again."""
    paused = [awaited.paused for awaited in waiting if awaited.paused is not None]
    ids = {known for one in paused for known in (one.call.id, *one.earlier_ids)}
    return () if last is None else tuple(given for given in last.resolutions if given.call_id in ids)


def resolve(wait: Wait, given: Sequence[Resolution]) -> Wait:
    """Return the wait with the further resolutions. A repetition of a stored one changes nothing.

    Raises InvalidInput for a call that does not wait, needs another kind of resolution, or is among `given` with two
    different ones, RunNotWaiting for a call that was given something else before.
    """
    resolutions = list(wait.resolutions)
    for number, one in enumerate(given):
        field = f"calls.{number}"
        kind = wait.kind_of(one.call_id)
        if kind is None:
            known = ", ".join(awaited.id for awaited in wait.calls)
            raise InvalidInput(
                f"The turn does not wait for a call {one.call_id!r}; it waits for: {known}.", field=f"{field}.call_id"
            )
        if (kind is WaitKind.APPROVAL) is not (one.decision is not None):
            needed = "`decision`" if kind is WaitKind.APPROVAL else "`output`"
            raise InvalidInput(f"The call {one.call_id!r} waits for: {kind}. Send {needed}.", field=field)
        stored = next((other for other in resolutions if other.call_id == one.call_id), None)
        if stored is not None and stored != one:
            if wait.resolution_for(one.call_id) is None:
                raise InvalidInput(
                    f"The request gives the call {one.call_id!r} two different things. Send one of them.", field=field
                )
            raise RunNotWaiting(f"The call {one.call_id!r} was given something else before, which counts.")
        if stored is None:
            resolutions.append(one)
    return replace(wait, resolutions=tuple(resolutions))


def check_answers(wait: Wait | None, given: Sequence[Resolution]) -> None:
    """Raise InvalidInput for the first answer that does not fit what the server of a tool asks.

    Without this check the question is asked again after the run was resumed.
    """
    paused = {} if wait is None else {one.id: one.paused for one in wait.open_calls if one.paused is not None}
    for number, one in enumerate(given):
        if one.call_id in paused and one.decision is None:
            try:
                read_input(paused[one.call_id].request, one.answer)
            except InvalidInput as error:
                raise InvalidInput(error.detail, field=f"calls.{number}.output") from error


def answered_question(metadata: JsonObject | None, question_id: str) -> JsonObject | None:
    """Return the server's question `question_id` from the metadata of the call, None if they have no such question.

    They are those of the stored result, or of the call as it waits for a later question. The question's members are
    `question` and, if it was answered, `answer` and `given_by`.
    """
    asked = None if metadata is None else metadata.get(QUESTIONS_KEY)
    numbered = asked if isinstance(asked, list) else []
    number = question_id.rpartition(":")[2]
    found = numbered[int(number) - 1] if number.isdecimal() and 1 <= int(number) <= len(numbered) else None
    return found if isinstance(found, dict) else None


def matches_result(one: Resolution, result: Message) -> bool:
    """Return whether the stored result came from an equal resolution: of its call, or of a question of its server.

    Authors are compared; for a decision also its reason and arguments, for anything else text and error flag.
    """
    kept = result.metadata
    if one.call_id != result.tool_call_id:
        asked = answered_question(kept, one.call_id) or {}
        is_its = call_of_question(one.call_id) == result.tool_call_id
        return is_its and (asked.get("answer"), asked.get("given_by")) == (one.answer, one.author)
    if kept.get("given_by") != one.author:
        return False
    if one.decision is None:
        kinds = {WaitKind.TOOL_RESULT.value, WaitKind.ANSWER.value}
        is_error = kept.get("is_error") is True
        return kept.get(OUTSIDE) in kinds and (text_of(result.content), is_error) == (one.text, one.is_error)
    is_same = kept.get("decision") == str(one.decision) and kept.get("reason", "") == one.text
    return is_same and kept.get("arguments") == (None if one.arguments is None else json.loads(one.arguments))


def read_question(arguments: str) -> Question:
    """Return the question in the arguments of a call of `ask_user`.

    Options that are no text or blank are left out. Without a question, the arguments themselves stand for it.
    """
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        given = {}
    if not isinstance(given, dict):
        given = {}
    text, options = given.get("question"), given.get("options")
    listed = options if isinstance(options, list) else []
    return Question(
        text if isinstance(text, str) and text.strip() else arguments,
        tuple(option for option in listed if isinstance(option, str) and option.strip()),
    )


def awaited(calls: Iterable[ToolCall], kinds: Mapping[str, str]) -> tuple[AwaitedCall, ...]:
    """Return the calls that `kinds` names, each with its kind, in the order of `calls`."""
    return tuple(AwaitedCall(call, WaitKind(kinds[call.id])) for call in calls if call.id in kinds)


RAW_ARGUMENTS = "_raw"
"""Key of the object that wraps arguments which are not a JSON object, when they are sent to a provider again."""

MOST_NESTED = 100
"""Most nested arrays and objects in a tool call's arguments: far more than tools need.

The JSON encoders of providers' clients can handle far more.
"""

SHORT_CHARACTERS, KEPT_SHORT = 500, 4096
"""Longest arguments whose compact JSON is cached, in characters, and the most entries of that cache.

Most arguments are that short, and their tokens are counted again for every prompt of a session.
"""

_UNSEEN = re.compile(r"[^ -~\n]+")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SentArguments:
    """The arguments of a tool call as they are sent to a provider again.

    `value` is for providers that take an object, `text` for those that take JSON text.
    """

    value: dict[str, object]
    text: str


def send_again(arguments: str) -> SentArguments:
    """Return what to send to a provider for the arguments a model wrote.

    A JSON object is sent as the very text that the model wrote, empty text as `{}`. Lone surrogates in its strings are
    replaced, because no provider accepts them. Other text is wrapped in an object, under RAW_ARGUMENTS: some providers
    accept nothing else, and the model still sees what it wrote.
    """
    value = _object_in(arguments)
    if value is None:
        value = {RAW_ARGUMENTS: arguments}
        return SentArguments(value, json.dumps(value, ensure_ascii=False))
    written = json.dumps(value, ensure_ascii=False)
    cleaned = clean_text(written)
    if cleaned == written:
        return SentArguments(value, arguments or written)
    return SentArguments(json.loads(cleaned), cleaned)


def is_json_object(arguments: str) -> bool:
    """Whether the arguments are a JSON object that every provider accepts; empty text counts as an empty object."""
    return _object_in(arguments) is not None


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Return the JSON object that a person wrote as arguments. Raises InvalidInput for anything else."""
    if not (text and is_json_object(text)):
        raise InvalidInput('The arguments must be one JSON object, such as {"file": "a.txt"}.', field="arguments")
    value: dict[str, JsonValue] = json.loads(text)
    return value


def compact_object(arguments: str) -> str:
    """Return the object that `send_again` sends for the arguments, as JSON text without whitespace outside strings."""
    return _compact_short(arguments) if len(arguments) <= SHORT_CHARACTERS else _compact(arguments)


def readable_arguments(arguments: str) -> str:
    """Return the arguments as indented JSON, for a person who decides on the call; other text stays as it is.

    Characters that cannot be seen, or that change the direction of reading, are written as escapes.
    """
    value = _object_in(arguments)
    shown = arguments if value is None else json.dumps(value, ensure_ascii=False, indent=2)
    return _UNSEEN.sub(lambda found: _escaped(found.group()), shown)


def _escaped(unseen: str) -> str:
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in unseen)


def _compact(arguments: str) -> str:
    value = _object_in(arguments)
    sent = {RAW_ARGUMENTS: arguments} if value is None else value
    return clean_text(json.dumps(sent, ensure_ascii=False, separators=(",", ":")))


@functools.lru_cache(KEPT_SHORT)
def _compact_short(arguments: str) -> str:
    return _compact(arguments)


def _object_in(arguments: str) -> dict[str, object] | None:
    """Return the JSON object that the text encodes, None if it is not one that every provider accepts.

    Empty text counts as an empty object.
    NaN, Infinity and numbers that overflow to infinity (1e999) are refused, since no provider takes them back. Nesting
    deeper than MOST_NESTED is refused: the parser's own limit depends on the caller's stack depth.
    """
    if _nesting(arguments) > MOST_NESTED:
        return None
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _nesting(text: str) -> int:
    """Return the greatest nesting depth of brackets outside strings; 0 if the text has too few brackets to matter.

    Closing brackets without an opening one are ignored.
    """
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return 0
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        bracket = found.group()
        if bracket in {"[", "{"}:
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in {"]", "}"}:
            depth = max(depth - 1, 0)
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """The space that a tool result may take in the prompt: `tokens`, as the agent's own counter `count` counts them."""

    tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Information about a tool call that the tool may use.

    `idempotency_key` is `run:tool_call_id`: unique per call, and the same if the call is repeated after a crash. With
    `may_recall_all` recall tools may read all sessions of the owner, else only this one. `is_shared`: other people read
    the session. A result larger than `room` is shortened in the prompt; None if the limit is unknown.
    """

    session_id: SessionId
    owner_id: UserId
    run_id: RunId
    idempotency_key: str
    may_recall_all: bool = False
    is_shared: bool = False
    room: ResultRoom | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's result for the model; an error is a result too."""

    text: str
    is_error: bool = False
    images: tuple[ImageBlock, ...] = ()
