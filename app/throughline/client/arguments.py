"""The arguments of `Client`: their limits and validation, and what a waiting call is given."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonObject, RunId, SessionId
from throughline.domain.errors import InvalidInput, PermanentError
from throughline.domain.message import Message, clean_text, is_blank, text_of
from throughline.domain.prompt import Overrides, ToolSpec
from throughline.domain.run import Caps, OnBusy, Run, RunStatus
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.domain.tool import MAX_OUTPUT, MAX_REASON, ApprovalDecision, Resolution
from throughline.execution.json_schema import SchemaInvalid, check_schema
from throughline.wire.overrides import ClientTools, OverridesIn, read_client_tools


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a client. All but the last have the name and the default of a setting of the service.

    During a database outage (a restart, a failover), `wait` and `events` keep trying for
    `database_away_timeout_seconds`. Other calls raise DatabaseUnavailable at once, because the program may have
    something better to do.

    The limits on queued messages are checked by the process that accepts a message. For messages from this program, its
    own limits therefore apply: give the service's values if its settings were changed. Raises InvalidInput for a value
    that is no finite number above 0.
    """

    max_queued_per_session: int = 10
    max_queued_per_owner: int = 1_000
    no_worker_timeout_seconds: float = 30.0
    db_pool_timeout_seconds: float = 5.0
    database_away_timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidInput(f"{field.name} is {value!r}; it must be a number above 0.", field=field.name)

    @property
    def caps(self) -> Caps:
        """The limits on waiting messages, as the database code that accepts a message takes them."""
        return Caps(queued_per_session=self.max_queued_per_session, queued_per_owner=self.max_queued_per_owner)


DEFAULT_LIMITS = Limits()


# Arguments of `Client` may come from files, environments and other libraries: a wrong one raises InvalidInput.

Word = TypeVar("Word", bound=StrEnum)
MOST_SHOWN = 80
_TOOLS: TypeAdapter[ClientTools] = TypeAdapter(ClientTools)
LARGEST_NUMBER = 2**31 - 2
"""Largest position or event number that the database stores."""


def read_session_id(given: SessionId | str) -> SessionId:
    """Return `given`, an id or its text, as a session id. Raises InvalidInput for text that is no id."""
    return SessionId(_uuid(given, field="session_id"))


def read_run_id(given: RunId | str) -> RunId:
    """Return `given`, an id or its text, as a run id. Raises InvalidInput for text that is no id."""
    return RunId(_uuid(given, field="run_id"))


def read_text(given: object, *, field: str) -> str:
    """Return `given` unchanged. Raises InvalidInput, with the name of the field, for anything but a str."""
    if isinstance(given, str):
        return given
    raise InvalidInput(f"{field} is {_shown(given)} ({type(given).__name__}); it must be a str.", field=field)


def read_optional_text(given: object, *, field: str) -> str | None:
    """Return `given` if it is a str that is not empty, None for '' and None. Raises InvalidInput for anything else."""
    return None if given is None else read_text(given, field=field) or None


def read_external_id(given: object) -> str:
    """Return the external id, cleaned. Raises InvalidInput unless it is a str of 1 to 255 characters, not blank."""
    text = clean_text(read_text(given, field="external_id"))
    if is_blank(text) or len(text) > MAX_EXTERNAL_ID:
        raise InvalidInput(
            f"external_id is {_shown(given)}; it must have 1 to {MAX_EXTERNAL_ID} characters and not be blank.",
            field="external_id",
        )
    return text


def read_number(given: object, *, field: str) -> int:
    """Return `given`, an int from 0 to LARGEST_NUMBER. Raises InvalidInput for anything else."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= LARGEST_NUMBER:
        return given
    raise InvalidInput(
        f"{field} is {_shown(given)}; it must be a whole number from 0 to {LARGEST_NUMBER}.", field=field
    )


def read_metadata(given: JsonObject | None) -> JsonObject:
    """Return a copy of `given`, {} for None. Raises InvalidInput unless it is a dict that JSON can represent."""
    try:
        written = json.dumps(given or {}, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        written = ""
    if not written.startswith("{"):
        raise InvalidInput(
            "metadata must be a dict of text, numbers, True, False, None, lists and dicts, as JSON has them.",
            field="metadata",
        )
    return dict(given or {})


def read_storable_object(given: Mapping[str, object], *, field: str) -> JsonObject:
    """Return a copy of `given`. Raises InvalidInput unless it is a mapping that JSON and the database can represent."""
    _check_text(given, field=field)
    try:
        read: JsonObject = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(
            f"{field} must be a dict of text, numbers, True, False, None, lists and dicts, as JSON has them.",
            field=field,
        ) from None
    return read


def read_tools(given: Sequence[Mapping[str, object]]) -> tuple[ToolSpec, ...]:
    """Return the client tools in `given`, which has the form that REST takes. Raises InvalidInput for another form."""
    _check_text(given, field="tools")
    try:
        return read_client_tools(_TOOLS.validate_python(given))
    except ValidationError as error:
        raise _invalid("tools", error) from None


def read_on_busy(given: OnBusy | str) -> OnBusy:
    """Return `given`, an OnBusy or its text, as an OnBusy. Raises InvalidInput for another text.

    Other code compares the value by identity, which text would never match.
    """
    return _one_of(OnBusy, given, field="on_busy")


def read_status(given: RunStatus | str | None) -> RunStatus | None:
    """Return `given`, a RunStatus or its text, as a RunStatus, None for None. Raises InvalidInput for another text."""
    return None if given is None else _one_of(RunStatus, given, field="status")


def read_overrides(given: Mapping[str, object] | None) -> Overrides:
    """Return the overrides in `given`, which has the form that REST takes.

    Whether the agent allows them is checked by the worker, which knows the agents.
    """
    _check_text(given, field="overrides")
    try:
        overrides = OverridesIn.model_validate(given or {}).read()
        if overrides.response_format is not None:
            check_schema(overrides.response_format.schema)
    except ValidationError as error:
        raise _invalid("overrides", error) from None
    except SchemaInvalid as error:
        raise InvalidInput(f"The JSON schema {error}.", field="overrides.response_format") from error
    return overrides


def _invalid(argument: str, error: ValidationError) -> InvalidInput:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join((argument, *(str(step) for step in first["loc"])))
    return InvalidInput(f"{field}: {first['msg'].removeprefix('Value error, ')}.", field=field)


def _check_text(given: object, *, field: str) -> None:
    """Raise InvalidInput if the database cannot store one of the texts in `given`."""
    try:
        written = json.dumps(given, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return  # the shape refuses it
    if clean_text(written) != written or "\\u0000" in written:
        raise InvalidInput(f"{field} has NUL or a lone surrogate in a text. Remove it.", field=field)


def _one_of(kind: type[Word], given: str, *, field: str) -> Word:
    try:
        return kind(given)
    except ValueError:
        allowed = ", ".join(repr(one.value) for one in kind)
        raise InvalidInput(f"{field} is {_shown(given)}; it must be one of {allowed}.", field=field) from None


def _uuid(given: UUID | str, *, field: str) -> UUID:
    try:
        return UUID(str(given))
    except ValueError:
        raise InvalidInput(
            f"{field} is {_shown(given)}, which is not an id. An id has 32 hexadecimal digits, such as the value"
            " of `.id`.",
            field=field,
        ) from None


def _shown(given: object) -> str:
    return repr(given)[:MOST_SHOWN]


AGAIN = "To ask again, submit the message with another idempotency key."


class NotAnswered(PermanentError):
    """Error of `Ended.answer` for a run that failed, was cancelled or waits; `run` is that run."""

    code = "not_answered"

    def __init__(self, detail: str, run: Run) -> None:
        super().__init__(detail)
        self.run = run


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended run and its answer, or a run that waits for something from outside.

    `message` is None if the run waits or failed, or was cancelled before the model wrote anything. A failed run has one
    only if its answer does not fit the response format. `run.status` says which, `run.error` why. `run.waiting_for` is
    set while the run waits: what its calls need, for `Client.resume`.
    """

    run: Run
    message: Message | None

    @property
    def text(self) -> str:
        """The text that was written, however the run ended: '' if none, half an answer if the run was cancelled."""
        return "" if self.message is None else text_of(self.message.content)

    def answer(self) -> str:
        """Return the answer's text. Raises NotAnswered unless the run succeeded."""
        if self.run.status is RunStatus.SUCCEEDED:
            return self.text
        raise NotAnswered(_why(self.run), self.run)


def _why(run: Run) -> str:
    if run.waiting_for is not None:
        calls = ", ".join(f"{call.kind} of {call.name} ({call.id})" for call in run.waiting_for.calls)
        return f"Run {run.id} waits for: {calls}. Give it with `resume`."
    if run.status is RunStatus.CANCELLED:
        return f"Run {run.id} was cancelled and has no complete answer. {AGAIN}"
    reason = f" ({run.error.type}): {run.error.detail}" if run.error is not None else "."
    return f"Run {run.id} failed{reason} {AGAIN}"


def approve(call_id: str) -> Resolution:
    """Let the call be run."""
    return Resolution(_call(call_id), decision=ApprovalDecision.APPROVE)


def reject(call_id: str, reason: str = "") -> Resolution:
    """Do not let the call be run; the model is told the reason. Raises InvalidInput for a reason that is too long."""
    return Resolution(_call(call_id), _text(reason, "reason", MAX_REASON), decision=ApprovalDecision.REJECT)


def edit(call_id: str, arguments: Mapping[str, object]) -> Resolution:
    """Let the call be run with these arguments. Raises InvalidInput unless JSON can represent them."""
    written = json.dumps(read_storable_object(arguments, field="arguments"), ensure_ascii=False)
    return Resolution(_call(call_id), decision=ApprovalDecision.EDIT, arguments=written)


def answer(call_id: str, text: str) -> Resolution:
    """Answer the question of the call. Raises InvalidInput for a text that is too long."""
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT))


def result(call_id: str, text: str, *, is_error: bool = False) -> Resolution:
    """Return the result of a tool that this program ran. `is_error`: the tool failed, and the text says why.

    Raises InvalidInput for a text that is too long.
    """
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT), is_error)


def _call(call_id: str) -> str:
    return clean_text(read_text(call_id, field="call_id"))


def _text(given: str, field: str, most: int) -> str:
    text = clean_text(read_text(given, field=field))
    if len(text) > most:
        raise InvalidInput(f"{field} has {len(text)} characters; at most {most} are allowed.", field=field)
    return text
