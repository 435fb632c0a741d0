"""The memories of the small service for tests of the command line."""

from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.wire.memories import MemoryList, MemoryOut, MemoryPage
from fakes.wire_shapes import answered, changed, memory_out, refused


@dataclass
class FakeMemories:
    """Keeps memories in the order they came; a search returns those that hold the query."""

    kept: dict[str, MemoryOut] = field(default_factory=dict)

    def add(self, text: str) -> str:
        memory = memory_out(len(self.kept), text)
        self.kept[memory.id] = memory
        return memory.id

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
        return answered(MemoryPage(data=newest[first : first + limit], next_cursor=behind))

    async def _create(self, request: Request) -> Response:
        return answered(self.kept[self.add((await request.json())["text"])], 201)

    async def _search(self, request: Request) -> Response:
        asked = await request.json()
        found = [changed(memory, score=1.0) for memory in self.kept.values() if asked["query"] in memory.text]
        return answered(MemoryList(data=found[: asked["limit"]], by="text"))

    async def _one(self, request: Request) -> Response:
        memory_id = request.path_params["memory"]
        if memory_id not in self.kept:
            return refused(404, f"There is no memory {memory_id}.")
        if request.method == "DELETE":
            del self.kept[memory_id]
            return Response(status_code=204)
        if request.method == "PATCH":
            self.kept[memory_id] = changed(self.kept[memory_id], text=(await request.json())["text"])
        return answered(self.kept[memory_id])
