"""The stored form of a request's overrides, in the column `runs.input`."""

from dataclasses import asdict

from throughline.domain.json_types import JsonObject, JsonValue
from throughline.domain.overrides import NO_OVERRIDES, Overrides, ResponseFormat


def overrides_data(overrides: Overrides) -> dict[str, JsonValue]:
    """Return the members that are stored with the input: none if nothing is overridden."""
    if overrides == NO_OVERRIDES:
        return {}
    given = {name: value for name, value in asdict(overrides).items() if value is not None and value is not False}
    return {"overrides": given}


def overrides_from(stored: JsonObject) -> Overrides:
    """Return the overrides in a stored input."""
    given = stored.get("overrides")
    if not isinstance(given, dict):
        return NO_OVERRIDES
    wanted = given.get("response_format")
    response_format = ResponseFormat(**wanted) if isinstance(wanted, dict) else None  # type: ignore[arg-type]  # as stored
    return Overrides(**{**given, "response_format": response_format})  # type: ignore[arg-type]  # as stored
