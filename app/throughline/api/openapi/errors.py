"""The problem documents of each operation, from the table of errors (`api/http/route_errors.py`)."""

from collections.abc import Sequence
from http import HTTPStatus

from throughline.api.http import route_errors
from throughline.api.http.headers import KEY_HEADER, REPLAYED
from throughline.api.http.problem_documents import MEDIA_TYPE
from throughline.api.native.documented import ERRORS, REF, Json, request_header, response_headers

SCHEMA = {"$ref": REF.format(model="Problem")}


def add_errors(path: str, operation: Json, *, is_admitted: bool) -> None:
    """Add the problem documents that an operation can answer with, by their HTTP status.

    `is_admitted` says whether the operation authenticates its requests. A documented answer of the same status stays.
    """
    responses = operation["responses"]
    responses.pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
    raised = _raised(path, operation, is_admitted=is_admitted)
    replayed = (REPLAYED,) if _takes_key(operation) else ()
    for status, codes in route_errors.by_status(raised).items():
        responses.setdefault(str(status), _problem(codes, (*route_errors.HEADERS.get(status, ()), *replayed)))
    responses["default"] = _problem(route_errors.CONNECTION, ())


def _raised(path: str, operation: Json, *, is_admitted: bool) -> list[str]:
    """Return the codes of the errors that an operation can raise, and remove its own list of them."""
    raised = [*route_errors.ANY_ROUTE, *operation.pop(ERRORS, ())]
    if is_admitted:
        raised += route_errors.AUTHENTICATION
    if "{" in path:
        raised += route_errors.PATH
    if operation.get("parameters"):
        raised += route_errors.PARAMETERS
    if "requestBody" in operation:
        raised += route_errors.BODY
    if _takes_key(operation):
        raised += route_errors.IDEMPOTENCY
    return raised


def _takes_key(operation: Json) -> bool:
    return request_header(KEY_HEADER) in operation.get("parameters", ())


def _problem(codes: Sequence[str], headers: Sequence[str]) -> Json:
    found: Json = {"description": route_errors.describe_codes(codes), "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
    return {**found, "headers": response_headers(*headers)} if headers else found
