"""What the OpenAPI documents of all front ends have in common: authentication, scopes and servers.

It adds what FastAPI cannot derive from the routes' signatures.
"""

from collections.abc import Collection, Iterator, Sequence

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from throughline.domain.keys import Scope
from throughline.http.admitted_request import as_key_holder, as_reader, as_writer
from throughline.http.documented import ON_BEHALF_OF, Json, request_header

SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "a key created by `throughline keys create`, or a token made by `POST /v1/tokens`",
    },
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same key or token"},
}
SCOPES = {as_reader: (Scope.READ,), as_writer: (Scope.WRITE,), as_key_holder: ()}
"""The scopes that a key needs, by the dependency that admits the request. Where there is none, any key will do."""

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


def _needed_scopes(app: FastAPI) -> Iterator[tuple[tuple[str | None, str], Sequence[Scope]]]:
    """Yield path, method and needed scopes of each route that authenticates its requests."""
    for route in iter_route_contexts(app.routes):
        dependencies = route.dependant.dependencies if isinstance(route.original_route, APIRoute) else ()
        for scopes in (SCOPES[each.call] for each in dependencies if each.call in SCOPES):
            yield from (((route.path_format, method.lower()), scopes) for method in route.methods or ())


def _add_authentication(operation: Json, scopes: Sequence[Scope], *, is_key_needed: bool) -> None:
    names = [scope.value for scope in scopes]
    operation["security"] = [{scheme: names} for scheme in SECURITY] + ([] if is_key_needed else [{}])
    operation.setdefault("parameters", []).append(request_header(ON_BEHALF_OF))
