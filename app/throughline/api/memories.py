"""Routes for memories: store, list, change, delete and search short texts."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from throughline.api.requests import Text
from throughline.db.memories import MemoryChange
from throughline.domain.recall import MAX_MEMORY_CHARACTERS
from throughline.http.body import read_body
from throughline.http.call import PathId, Reader, Writer, memory_id_of
from throughline.http.documents import described, response_headers
from throughline.http.fields import STRICT, Metadata, QueryParameters
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.wire.sessions import MemoryList, MemoryOut, MemoryPage


class CreateMemory(BaseModel):
    """A text to store as a memory."""

    model_config = STRICT

    text: Text = Field(max_length=MAX_MEMORY_CHARACTERS, examples=["Anna's cat is called Miso."])
    metadata: Metadata = Field(default_factory=dict)


class ChangeMemory(BaseModel):
    """Changes to a memory. An omitted field stays as it is; metadata is replaced as a whole."""

    model_config = STRICT

    text: Text = Field("-", max_length=MAX_MEMORY_CHARACTERS)
    metadata: Metadata = Field(default_factory=dict)


class SearchMemories(BaseModel):
    """A search in the caller's memories."""

    model_config = STRICT

    query: Text = Field(max_length=1_000, examples=["the name of the cat"])
    limit: int = Field(10, ge=1, le=50, description="default: 10")


class ListMemories(QueryParameters):
    """A page of the list of memories, newest first."""

    limit: int = Field(50, ge=1, le=200)
    cursor: str | None = Field(None, max_length=512, description="`next_cursor` of the previous page")


router = PrefixRouter(prefix="/v1/memories", tags=["memories"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": MemoryOut, "headers": response_headers("Location")}},
    openapi_extra=described(body=CreateMemory),
)
async def create_memory(request: Request, call: Writer) -> Response:
    """Store a text as a memory."""
    body = await read_body(request, CreateMemory)
    memory = await call.services.memories.create(call.owner_id, body.text, body.metadata)
    return JsonResponse(MemoryOut.render(memory), HTTPStatus.CREATED, {"Location": f"/v1/memories/{memory.id}"})


@router.get("", responses={HTTPStatus.OK: {"model": MemoryPage}})
async def list_memories(call: Reader, asked: Annotated[ListMemories, Query()]) -> Response:
    """List the caller's memories, newest first."""
    page = await call.services.database.memories.list(call.owner_id, asked.limit, asked.cursor)
    return JsonResponse(MemoryOut.render_page(page))


@router.post("/search", responses={HTTPStatus.OK: {"model": MemoryList}}, openapi_extra=described(body=SearchMemories))
async def search_memories(request: Request, call: Reader) -> Response:
    """Search the caller's memories; the best matches come first.

    The search is by words, and by meaning too if an embedding model is configured.
    """
    body = await read_body(request, SearchMemories)
    found = await call.services.memories.search(call.owner_id, body.query, body.limit)
    return JsonResponse(MemoryList.render(found))


@router.get("/{memory_id}", responses={HTTPStatus.OK: {"model": MemoryOut}})
async def get_memory(memory_id: PathId, call: Reader) -> Response:
    """Return a memory."""
    return JsonResponse(
        MemoryOut.render(await call.services.database.memories.get(call.owner_id, memory_id_of(memory_id)))
    )


@router.patch(
    "/{memory_id}", responses={HTTPStatus.OK: {"model": MemoryOut}}, openapi_extra=described(body=ChangeMemory)
)
async def change_memory(request: Request, memory_id: PathId, call: Writer) -> Response:
    """Change a memory's text or metadata; omitted fields stay as they are."""
    found = memory_id_of(memory_id)
    body = await read_body(request, ChangeMemory)
    given = body.model_fields_set
    change = MemoryChange(
        text=body.text if "text" in given else None, metadata=body.metadata if "metadata" in given else None
    )
    return JsonResponse(MemoryOut.render(await call.services.memories.update(call.owner_id, found, change)))


@router.delete("/{memory_id}", status_code=HTTPStatus.NO_CONTENT)
async def delete_memory(memory_id: PathId, call: Writer) -> Response:
    """Delete a memory."""
    await call.services.database.memories.delete(call.owner_id, memory_id_of(memory_id))
    return Response(status_code=HTTPStatus.NO_CONTENT)
