"""Validation of the arguments of `Client`, which may come from files, environments and other libraries.

A value of the wrong kind raises InvalidInput with the argument's name.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonObject, RunId, SessionId
from throughline.domain.errors import InvalidInput
from throughline.domain.message import clean_text, is_blank
from throughline.domain.prompt import Overrides, ToolSpec
from throughline.domain.run import OnBusy, RunStatus
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.execution.json_schema import SchemaInvalid, check_schema
from throughline.wire.overrides import ClientTools, OverridesIn, read_client_tools

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
