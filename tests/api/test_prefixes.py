"""Routers that are passed by for paths that do not begin with their prefix."""

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from throughline.http.prefix_router import PrefixRouter

tried: list[str] = []


class Noted(APIRoute):
    """A route that notes the paths that it is tried for."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        tried.append(scope["path"])
        return super().matches(scope)


async def test_routes_are_tried_only_for_paths_with_their_prefix() -> None:
    app, router = FastAPI(), PrefixRouter(prefix="/things/{thing_id}/parts", route_class=Noted)

    @router.get("/{part_id}")
    async def read_part(thing_id: str, part_id: str) -> list[str]:
        return [thing_id, part_id]

    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        other = await client.get("/others/1/parts/2")
        found = await client.get("/things/1/parts/2")

    assert (other.status_code, found.json()) == (httpx.codes.NOT_FOUND, ["1", "2"])
    assert {*tried} == {"/things/1/parts/2"}
