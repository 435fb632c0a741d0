"""Reading of requests in OpenAI's form. What asks for something that this service does not have is refused by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel

from throughline.domain.basic_types import JsonValue
from throughline.http.body import read_json, validate
from throughline.http.route_errors import FieldError, InvalidRequest

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field of OpenAI's that this service does not have: why, and the values that mean the same as leaving it out."""

    why: str
    same_as_missing: Sequence[JsonValue] = (None,)


async def read_request(request: Request, model: type[Body], unsupported: Mapping[str, Unsupported]) -> Body:
    """Return the request's body as `model`, without its unsupported fields whose values mean nothing.

    Raises InvalidRequest, which names every unsupported or wrong field, and the other errors of `read_body`.
    """
    return validate_request(await read_json(request), model, unsupported)


def validate_request(given: JsonValue, model: type[Body], unsupported: Mapping[str, Unsupported]) -> Body:
    """Return parsed JSON as `model`, without unsupported fields whose values mean nothing. Raises InvalidRequest."""
    if not isinstance(given, dict):
        return validate(given, model)
    refused = [
        FieldError(name, f"This service does not have it: {unsupported[name].why}. Leave it out.")
        for name, value in given.items()
        if name in unsupported and value not in unsupported[name].same_as_missing
    ]
    if refused:
        raise InvalidRequest(tuple(refused))
    return validate({name: value for name, value in given.items() if name not in unsupported}, model)
