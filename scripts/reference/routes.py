"""The made parts of the page of routes, from the OpenAPI document: a table for each subject, and the shared errors."""

import re
from collections.abc import Iterator, Mapping, Sequence

from fastapi import FastAPI

from scripts.reference.markdown import code, table
from scripts.reference.schema_types import Schema
from throughline.api.document import document
from throughline.api.front_end import API
from throughline.http import route_errors
from throughline.http.documents import ON_BEHALF_OF, operation_id
from throughline.http.route_errors import PROBLEM_KINDS, TooManyConnections

CODE = re.compile(r"^- `(\w+)`:", re.MULTILINE)
EVERYWHERE = (*route_errors.ANY_ROUTE, *route_errors.AUTHENTICATION, *route_errors.CONNECTION)
TURN = tuple(name for name in route_errors.TURN if name in PROBLEM_KINDS)
BEYOND_LIMIT = TooManyConnections.code
GROUPS: Mapping[str, Sequence[str]] = {"body": route_errors.BODY, "turn": TURN}
"""Errors that a route has together, by the word that stands for them."""

TABLES: Mapping[str, Sequence[str]] = {
    "sessions": ("sessions",),
    "messages-and-runs": ("messages", "runs"),
    "context-and-summaries": ("context", "summaries"),
    "search-and-memories": ("search", "memories"),
    "usage-agents-tokens": ("usage", "agents", "tokens", "users", "operators"),
    "public": ("problems", "health"),
}
"""The tags of the document in each table."""


def routes_parts() -> dict[str, str]:
    """Return the tables of routes, and the table of the errors of many routes.

    Raises ValueError if a tag of the document has no table.
    """
    app = FastAPI(generate_unique_id_function=operation_id)
    for router in API.routers:
        app.include_router(router)
    made = document(app, is_key_needed=True)
    columns = ("route", "scope", "what it does", "parameters and body", "errors of its own")
    rows = [
        (operation["tags"][0], _row(f"{method.upper()} {path}", operation, made["components"]["schemas"]))
        for path, item in made["paths"].items()
        for method, operation in item.items()
    ]
    if untold := {tag for tag, _ in rows} - {tag for tags in TABLES.values() for tag in tags}:
        raise ValueError(f"no table has the routes of {sorted(untold)}")
    tables = {
        name: table(columns, [row for tag in tags for other, row in rows if other == tag])
        for name, tags in TABLES.items()
    }
    return {**tables, "shared-errors": _shared_errors()}


def _shared_errors() -> str:
    groups = {
        "every route": (*route_errors.ANY_ROUTE, *(name for name in route_errors.CONNECTION if name != BEYOND_LIMIT)),
        "every route except health and metrics": (BEYOND_LIMIT,),
        "every route below `/v1`": route_errors.AUTHENTICATION,
        "**body**": route_errors.BODY,
        "**turn**": TURN,
    }
    return table(("of", "errors"), ((word, ", ".join(map(code, codes))) for word, codes in groups.items()))


def _row(route: str, operation: Schema, schemas: Schema) -> tuple[str, ...]:
    told = " ".join(operation["description"].partition("\n\n")[0].split())
    taken = [*_parameters(operation), *_body(operation, schemas)]
    return code(route), _scope(operation), told, ", ".join(taken), ", ".join(_own_errors(operation))


def _scope(operation: Schema) -> str:
    """Return the scope that a key needs: `any` if any key will do, '' if no key is needed."""
    if not operation["security"]:
        return ""
    names = [code(name) for kind in operation["security"] for name in kind.get("bearer", ())]
    return " or ".join(names) or code("any")


def _parameters(operation: Schema) -> Iterator[str]:
    """Yield the query parameters, then the request headers that not every route takes; the path shows its own."""
    parameters = operation.get("parameters", ())
    yield from (code(f"?{each['name']}") for each in parameters if each.get("in") == "query")
    headers = (each["$ref"].rpartition("/")[2] for each in parameters if "$ref" in each)
    yield from (code(name) for name in headers if name != ON_BEHALF_OF)


def _body(operation: Schema, schemas: Schema) -> Iterator[str]:
    """Yield the fields of a JSON body in one: `{content, metadata?}`."""
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        schema = schemas[content["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        required = schema.get("required", ())
        fields = (name if name in required else f"{name}?" for name in schema["properties"])
        yield code(f"{{{', '.join(fields)}}}")


def _own_errors(operation: Schema) -> Iterator[str]:
    """Yield the groups of errors of a route, then its other codes, without those that every route has."""
    found = [name for answer in operation["responses"].values() for name in CODE.findall(answer.get("description", ""))]
    codes = dict.fromkeys(found)
    for word, group in GROUPS.items():
        if set(group) <= codes.keys():
            yield f"**{word}**"
            codes = {name: None for name in codes if name not in group}
    yield from (code(name) for name in codes if name not in EVERYWHERE)
