"""What a program gives `Client`, read and checked: its values come from files, environments and other libraries.

What is of another kind raises InvalidInput, with the argument's name.
"""

import json
from uuid import UUID

from throughline.domain.errors import InvalidInput
from throughline.domain.ids import RunId, SessionId
from throughline.domain.json_types import JsonObject
from throughline.domain.submission import OnBusy

MOST_SHOWN = 80
LARGEST_NUMBER = 2**31 - 2
"""Of positions and events; the database keeps no larger one."""


def read_session_id(given: SessionId | str) -> SessionId:
    """Return the id that `given` stands for."""
    return SessionId(_uuid(given, field="session_id"))


def read_run_id(given: RunId | str) -> RunId:
    """Return the id that `given` stands for."""
    return RunId(_uuid(given, field="run_id"))


def read_text(given: object, *, field: str) -> str:
    """Return `given` where it is a str."""
    if isinstance(given, str):
        return given
    raise InvalidInput(f"{field} is {_shown(given)} ({type(given).__name__}); it has to be text, a str.", field=field)


def read_optional_text(given: object, *, field: str) -> str | None:
    """Return `given` where it is a str that says something, None for '' and None."""
    return None if given is None else read_text(given, field=field) or None


def read_number(given: object, *, field: str) -> int:
    """Return `given` where it is a number that an event or a message may have, or 0."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= LARGEST_NUMBER:
        return given
    raise InvalidInput(
        f"{field} is {_shown(given)}; it has to be a whole number from 0 to {LARGEST_NUMBER}.", field=field
    )


def read_metadata(given: JsonObject | None) -> JsonObject:
    """Return a copy of `given` where JSON can hold it, {} for None."""
    try:
        written = json.dumps(given or {}, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        written = ""
    if not written.startswith("{"):
        raise InvalidInput(
            "metadata holds what JSON cannot: it is a dict of text, numbers, True, False, None, lists and dicts.",
            field="metadata",
        )
    return dict(given or {})


def read_on_busy(given: OnBusy | str) -> OnBusy:
    """Return what is meant: it is compared by identity further in, where text would be none of them."""
    try:
        return OnBusy(given)
    except ValueError:
        allowed = ", ".join(repr(one.value) for one in OnBusy)
        raise InvalidInput(f"on_busy is {_shown(given)}; it may be one of {allowed}.", field="on_busy") from None


def _uuid(given: UUID | str, *, field: str) -> UUID:
    try:
        return UUID(str(given))
    except ValueError:
        raise InvalidInput(
            f"{field} is {_shown(given)}, which is no id. An id is 32 hexadecimal digits, as `.id` has it.", field=field
        ) from None


def _shown(given: object) -> str:
    return repr(given)[:MOST_SHOWN]
