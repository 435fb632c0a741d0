"""The memories of the small service for tests of the command line."""

from dataclasses import dataclass, field
from uuid import UUID

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

WHEN = "2026-05-04T03:02:01+00:00"


@dataclass
class FakeMemories:
    """Keeps memories in the order they came; a search returns those that hold the query."""

    kept: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, text: str) -> str:
        memory_id = str(UUID(int=0xBB0000 + len(self.kept)))
        times = {"created_at": WHEN, "updated_at": WHEN}
        self.kept[memory_id] = {"id": memory_id, "text": text, "metadata": {}, "score": None, **times}
        return memory_id

    def routes(self) -> list[Route]:
        return [
            Route("/v1/memories", self._list, methods=["GET"]),
            Route("/v1/memories", self._create, methods=["POST"]),
            Route("/v1/memories/search", self._search, methods=["POST"]),
            Route("/v1/memories/{memory}", self._one, methods=["GET", "PATCH", "DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        limit, first = int(request.query_params["limit"]), int(request.query_params.get("cursor", "0"))
        newest = list(self.kept.values())[::-1]
        behind = str(first + limit) if first + limit < len(newest) else None
        return JSONResponse({"data": newest[first : first + limit], "next_cursor": behind})

    async def _create(self, request: Request) -> Response:
        return JSONResponse(self.kept[self.add((await request.json())["text"])], 201)

    async def _search(self, request: Request) -> Response:
        asked = await request.json()
        found = [memory for memory in self.kept.values() if asked["query"] in str(memory["text"])]
        return JSONResponse({"data": found[: asked["limit"]]})

    async def _one(self, request: Request) -> Response:
        memory_id = request.path_params["memory"]
        if memory_id not in self.kept:
            body = {"title": "Not found", "status": 404, "detail": f"There is no memory {memory_id}."}
            return JSONResponse(body, 404, media_type="application/problem+json")
        if request.method == "DELETE":
            del self.kept[memory_id]
            return Response(status_code=204)
        if request.method == "PATCH":
            self.kept[memory_id]["text"] = (await request.json())["text"]
        return JSONResponse(self.kept[memory_id])
