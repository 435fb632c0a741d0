"""Compares every answer that tests get with the OpenAPI document: status, media type, headers and error."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import httpx
from fastapi import FastAPI

from throughline.http.app import CORS_EXPOSED
from throughline.http.problem_documents import MEDIA_TYPE
from throughline.http.problem_kinds import PROBLEM_KINDS

Json: TypeAlias = dict[str, Any]
Operations: TypeAlias = list[tuple[re.Pattern[str], str, Json]]

_KNOWN: Operations = []
"""The operations of the first application: all applications have the same."""


def check_answers(app: FastAPI) -> Callable[[httpx.Response], Awaitable[None]]:
    """Return a hook of an HTTP client. It fails if an answer of a documented route is not as documented."""

    async def check(response: httpx.Response) -> None:
        documented = _documented(_operations(app), response)
        if documented is None:
            return
        where = f"{response.request.method} {response.request.url.path}: {response.status_code}"
        media_type = response.headers.get("content-type", "").partition(";")[0]
        assert media_type in documented.get("content", {"": {}}), f"{where} has the media type {media_type}"
        sent = {name for name in CORS_EXPOSED if name in response.headers}
        assert sent <= documented.get("headers", {}).keys(), f"{where} has the headers {sent}"
        if media_type == MEDIA_TYPE:
            await response.aread()
            code = response.json()["type"].rpartition("/")[2]
            assert code not in PROBLEM_KINDS or f"`{code}`" in documented["description"], f"{where} {code}"

    return check


def _documented(operations: Operations, response: httpx.Response) -> Json | None:
    """Return the document's entry for an answer, None for routes that are not documented."""
    request = response.request
    for pattern, method, operation in operations:
        if method == request.method and pattern.fullmatch(request.url.path):
            documented: Json = operation["responses"].get(str(response.status_code), operation["responses"]["default"])
            return documented
    return None


def _operations(app: FastAPI) -> Operations:
    """Return form of the path, method and description of each operation, paths without parameters first."""
    if not _KNOWN:
        paths = sorted(app.openapi()["paths"].items(), key=lambda item: item[0].count("{"))
        _KNOWN.extend(
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), method.upper(), operation)
            for path, item in paths
            for method, operation in item.items()
        )
    return _KNOWN
