"""What the OpenAPI documents of all front ends have in common, and what routes declare for them.

FastAPI cannot derive it from the routes' signatures.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from throughline.domain.keys import Scope
from throughline.http import route_errors
from throughline.http.call import as_canceller, as_key_holder, as_operator, as_reader, as_writer
from throughline.http.follow import MEDIA_TYPE as EVENT_STREAM
from throughline.http.headers import KEY_HEADER, LAST_EVENT_ID
from throughline.http.problem_documents import MEDIA_TYPE, json_bytes
from throughline.wire.data_age import DATA_AS_OF

Json: TypeAlias = dict[str, Any]  # Any: an OpenAPI document has no type of its own
JSON = "application/json"
REF = "#/components/schemas/{model}"
PROBLEM: Json = {MEDIA_TYPE: {"schema": {"$ref": REF.format(model="Problem")}}}
UNION = "RunEvent"
"""Name of the schema that every event of a run fits."""

ERRORS = "x-errors"
"""Member of an operation that holds the codes of its own errors, until the document is made."""

ACCEPT, ON_BEHALF_OF, PREFER, X_CLIENT = "Accept", "On-Behalf-Of", "Prefer", "X-Client"


def described(
    *,
    body: type[BaseModel] | None = None,
    is_body_required: bool = True,
    headers: Sequence[str] = (),
    queries: Sequence[Json] = (),
    errors: Sequence[str] = (),
) -> Json:
    """Return the `openapi_extra` of a route.

    `body` is the model of a JSON body that the route parses itself, and `headers` names request headers. `queries` are
    query parameters that its signature does not have. `errors` are the codes of errors that the route's own work
    raises; `http/route_errors.py` has all others.
    """
    extra: Json = {ERRORS: list(errors)}
    if headers or queries:
        extra["parameters"] = [*map(request_header, headers), *queries]
    if body is not None:
        schema = {"$ref": REF.format(model=body.__name__)}
        extra["requestBody"] = {"required": is_body_required, "content": {JSON: {"schema": schema}}}
    return extra


def request_header(name: str) -> Json:
    """Return the documented parameter for a header of REQUEST_HEADERS."""
    return {"$ref": f"#/components/parameters/{name}"}


def response_headers(*names: str) -> Json:
    """Return the `headers` of a documented response, which RESPONSE_HEADERS describes."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def event_stream() -> Json:
    """Return the content of a response that is an event stream: text that decodes to a list of events."""
    events = {"type": "array", "items": {"$ref": REF.format(model=UNION)}}
    schema = {"type": "string", "contentMediaType": EVENT_STREAM, "contentSchema": events}
    return {EVENT_STREAM: {"schema": schema}}


def _request_header(name: str, description: str, **schema: str | int | list[str]) -> Json:
    schema = {"type": "string", **schema}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _response_header(description: str, **schema: str | int) -> Json:
    return {"description": description, "schema": {"type": "string", **schema}}


REQUEST_HEADERS: dict[str, Json] = {
    ACCEPT: _request_header(
        ACCEPT, "`text/event-stream`: answer with the events of the run", enum=[JSON, EVENT_STREAM], default=JSON
    ),
    KEY_HEADER: _request_header(
        KEY_HEADER,
        "a repeated request with the same key and body gets the same answer and does nothing twice",
        minLength=1,
        maxLength=255,
        pattern="^[ -~]+$",
    ),
    LAST_EVENT_ID: _request_header(
        LAST_EVENT_ID, "continue after this event; -1: from the beginning", pattern=r"^(-1|\d{1,9})$"
    ),
    ON_BEHALF_OF: _request_header(
        ON_BEHALF_OF,
        "the user for whom a key with the scope `act_as` acts",
        minLength=1,
        maxLength=200,
        pattern="^[ -~]+$",
    ),
    PREFER: _request_header(PREFER, "`respond-async`: answer 202 at once; other values are ignored"),
    X_CLIENT: _request_header(
        X_CLIENT, "the interface that is stored as `source`; without it `api`", enum=["web", "cli"]
    ),
}
RESPONSE_HEADERS: dict[str, Json] = {
    "Content-Disposition": _response_header("a file name to save the body under"),
    "Content-Location": _response_header("path of the run, or of its events"),
    DATA_AS_OF: _response_header(
        "a replica of the database answered: what was stored before this time is included, later changes may be "
        "missing; `unknown`: the replica does not tell. Without this header nothing is missing"
    ),
    "Idempotency-Replayed": _response_header("`true`: an earlier request with the same key was answered again"),
    "Location": _response_header("path of the new object"),
    "Preference-Applied": _response_header("the preference of `Prefer` that was followed"),
    "Retry-After": _response_header("seconds until a retry may succeed", type="integer"),
    "WWW-Authenticate": _response_header("how to authenticate"),
}


SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "a key created by `throughline keys create`, or a token made by `POST /v1/tokens`",
    },
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same key or token"},
}
SCOPES = {
    as_reader: (Scope.READ,),
    as_writer: (Scope.WRITE,),
    as_operator: (Scope.OPERATE,),
    as_canceller: (Scope.WRITE, Scope.OPERATE),
    as_key_holder: (),
}
"""The scopes of which a key needs one, by the dependency that admits the request. Without any, each key will do."""

LICENSE = "Apache-2.0"
SERVERS = [
    {"url": "/", "description": "the service that this document was read from"},
    {"url": "http://127.0.0.1:8000", "description": "a service of this machine at the default address"},
]


def operation_id(route: APIRoute) -> str:
    """Return the operation id of a route: the name of its function in lowerCamelCase."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def describe_routes(app: FastAPI, tags: Collection[str], *, is_key_needed: bool) -> Json:
    """Return FastAPI's document of the routes that have one of these tags, each with its `security`.

    It holds the schemas of all routes.
    """
    made: Json = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=SERVERS,
        license_info={"name": LICENSE, "identifier": LICENSE},
    )
    needed = dict(_needed_scopes(app))
    for path, item in tuple(made["paths"].items()):
        if not any(tag in tags for operation in item.values() for tag in operation["tags"]):
            del made["paths"][path]
            continue
        for method, operation in item.items():
            scopes = needed.get((path, method))
            if scopes is None:
                operation["security"] = []
            else:
                _add_authentication(operation, scopes, is_key_needed=is_key_needed or not scopes)
    return made


def pop_error_codes(path: str, operation: Json) -> list[str]:
    """Return the codes of the errors that a described operation can raise, and remove its own list of them."""
    raised = [*route_errors.ANY_ROUTE, *operation.pop(ERRORS, ())]
    if operation["security"]:
        raised += route_errors.AUTHENTICATION
    if "{" in path:
        raised += route_errors.PATH
    if operation.get("parameters"):
        raised += route_errors.PARAMETERS
    if "requestBody" in operation:
        raised += route_errors.BODY
    if takes_idempotency_key(operation):
        raised += route_errors.IDEMPOTENCY
    return raised


def describe_errors(raised: Sequence[str], content: Json, *headers: str) -> Json:
    """Return the answers to errors with these codes by their status, with these headers besides those of the status."""
    return {
        str(status): describe_error(found, content, *route_errors.HEADERS.get(status, ()), *headers)
        for status, found in route_errors.by_status(raised).items()
    }


def describe_error(codes: Sequence[str], content: Json, *headers: str) -> Json:
    """Return the response that errors with these codes are answered with."""
    described: Json = {"description": route_errors.describe_codes(codes), "content": content}
    return {**described, "headers": response_headers(*headers)} if headers else described


def takes_idempotency_key(operation: Json) -> bool:
    """Return whether an operation reads the header Idempotency-Key."""
    return request_header(KEY_HEADER) in operation.get("parameters", ())


@dataclass(frozen=True, slots=True)
class FrontEndDocument:
    """The OpenAPI document of a front end other than REST, served at `address`. Its routes have the tag `tag`.

    `bodies` are the models of JSON bodies, and `schemas` further schemas by name. `describe_operation` is
    called with the path and what is known of each operation. `adapt_schema` is applied to the schemas of `bodies`.
    """

    address: str
    tag: str
    title: str
    bodies: Sequence[type[BaseModel]]
    describe_operation: Callable[[str, Json], None]
    description: str | None = None
    schemas: Mapping[str, Json] = field(default_factory=dict)
    adapt_schema: Callable[[Json], Json] = lambda schema: schema

    def make(self, app: FastAPI, *, is_key_needed: bool) -> Json:
        """Return the document of the application's routes with the tag."""
        made = describe_routes(app, {self.tag}, is_key_needed=is_key_needed)
        for path, item in made["paths"].items():
            for operation in item.values():
                self.describe_operation(path, operation)
        _, found = models_json_schema([(model, "validation") for model in self.bodies], ref_template=REF)
        info = {**made["info"], "title": self.title, "description": self.description or made["info"]["description"]}
        schemas = {**{name: self.adapt_schema(schema) for name, schema in found["$defs"].items()}, **self.schemas}
        return {
            "openapi": "3.1.0",
            "info": info,
            "servers": SERVERS,
            "paths": made["paths"],
            "components": {"schemas": schemas, "securitySchemes": SECURITY, **_used_headers(made["paths"])},
        }

    def serve(self, app: FastAPI, *, is_key_needed: bool) -> None:
        """Serve the document, which is made at the first request for it."""
        made = cache(lambda: json_bytes(self.make(app, is_key_needed=is_key_needed)))

        @app.api_route(self.address, methods=["GET", "HEAD"], include_in_schema=False)
        async def read_document() -> Response:
            return Response(made(), media_type=JSON)


def _used_headers(paths: Json) -> Json:
    """Return the components that describe headers, of those only that the paths refer to."""
    text = json_bytes(paths).decode()
    return {
        kind: {name: header for name, header in known.items() if f'"#/components/{kind}/{name}"' in text}
        for kind, known in (("parameters", REQUEST_HEADERS), ("headers", RESPONSE_HEADERS))
    }


def _needed_scopes(app: FastAPI) -> Iterator[tuple[tuple[str | None, str], Sequence[Scope]]]:
    """Yield path, method and needed scopes of each route that authenticates its requests."""
    for route in iter_route_contexts(app.routes):
        dependencies = route.dependant.dependencies if isinstance(route.original_route, APIRoute) else ()
        for scopes in (SCOPES[each.call] for each in dependencies if each.call in SCOPES):
            yield from (((route.path_format, method.lower()), scopes) for method in route.methods or ())


def _add_authentication(operation: Json, scopes: Sequence[Scope], *, is_key_needed: bool) -> None:
    needed = [[scope.value] for scope in scopes] or [[]]
    sufficient: list[Json] = [{scheme: names} for names in needed for scheme in SECURITY]
    operation["security"] = sufficient + ([] if is_key_needed else [{}])
    operation.setdefault("parameters", []).append(request_header(ON_BEHALF_OF))
