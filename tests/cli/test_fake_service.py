"""The service that tests of the command line talk to answers as the real one does: status, media type, shape."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from uuid import UUID

import httpx
import pytest
from starlette.routing import Route

from app.cli.sse import SseParser
from app.db.database import Database
from app.domain.ids import SessionId
from app.domain.json_types import JsonValue
from app.wire.context import PreviewedMessage, StretchToSummarise
from fakes.api_stage import ApiStage, open_session, set_stage
from fakes.conversations import Conversation
from fakes.fake_service import FakeService, answer_of
from fakes.wire_shapes import hit_out, preview_out, version_out

UNKNOWN = str(UUID(int=0xFFF))
RUN_EVENTS = re.compile(r"/v1/runs/[0-9a-f-]{36}/events")
TOLD_BY_BOTH = ("run.started", "message.delta", "run.completed")


@dataclass(frozen=True)
class Asked:
    """A request: a route of the fake, and what is sent there. `names` has other ids for the path."""

    method: str
    route: str
    body: JsonValue = None
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.route} {self.names or ''}"


@dataclass(frozen=True)
class Answered:
    """What can be compared of an answer; of a stream, the data of each kind of event."""

    status: int
    media_type: str
    body: JsonValue


@dataclass
class Side:
    """One of the two services, with the ids of what is in it by their names in the fake's routes."""

    client: httpx.AsyncClient
    ids: dict[str, str]

    async def answer(self, asked: Asked) -> Answered:
        others = {name: self.ids.get(other, other) for name, other in asked.names.items()}
        path = asked.route.format(**{**self.ids, **others})
        response = await self.client.request(
            asked.method, path, json=asked.body, params=asked.query, headers=asked.headers
        )
        media_type = response.headers.get("content-type", "").partition(";")[0]
        if media_type != "text/event-stream":
            return Answered(response.status_code, media_type, response.json() if response.content else None)
        assert RUN_EVENTS.fullmatch(response.headers["content-location"])
        events = {event.event: json.loads(event.data) for event in SseParser().feed(response.content)}
        return Answered(response.status_code, media_type, {name: events.get(name) for name in TOLD_BY_BOTH})


KEY = {"Accept": "text/event-stream", "Idempotency-Key": "k"}
SESSION = "/v1/sessions/{id}"
ASKED = (
    Asked("GET", "/v1/agents"),
    Asked("GET", "/v1/sessions", query={"limit": 1}),
    Asked("POST", "/v1/sessions", {"agent": "assistant", "title": "t"}),
    Asked("POST", "/v1/sessions/import", {"agent": "assistant", "messages": [{"role": "user", "content": "hi"}]}),
    Asked("GET", SESSION),
    Asked("GET", SESSION, names={"id": UNKNOWN}),
    Asked("GET", f"{SESSION}/messages", query={"limit": 1}),
    Asked("POST", f"{SESSION}/messages", {"content": "hi"}, headers=KEY),
    Asked("POST", f"{SESSION}/messages", {"content": "hi"}, headers=KEY, names={"id": UNKNOWN}),
    Asked("GET", "/v1/runs/{run}/events"),
    Asked("POST", "/v1/runs/{run}/cancel"),
    Asked("GET", "/v1/search", query={"q": "hello", "limit": 1}),
    Asked("GET", f"{SESSION}/search", query={"q": "hello", "limit": 1}),
    Asked("GET", f"{SESSION}/context"),
    Asked("POST", f"{SESSION}/context/preview", {}),
    Asked("GET", f"{SESSION}/summaries", query={"limit": 5}),
    Asked("GET", f"{SESSION}/summaries/{{summary}}"),
    Asked("GET", f"{SESSION}/summaries/{{summary}}", names={"summary": "unknown"}),
    Asked("POST", f"{SESSION}/summaries/{{summary}}/restore", {}, names={"summary": "prepared"}),
    Asked("POST", f"{SESSION}/summaries/{{summary}}/restore", {}),
    Asked("POST", f"{SESSION}/summarize", {}),
    Asked("PUT", f"{SESSION}/messages/{{message}}/pin"),
    Asked("DELETE", f"{SESSION}/messages/{{message}}/pin"),
    Asked("POST", f"{SESSION}/messages/{{message}}/redact", {}),
    Asked("POST", f"{SESSION}/messages/{{message}}/redact", {}, names={"message": UNKNOWN}),
    Asked("POST", "/v1/memories", {"text": "Another cat."}),
    Asked("GET", "/v1/memories", query={"limit": 1}),
    Asked("POST", "/v1/memories/search", {"query": "cat", "limit": 1}),
    Asked("GET", "/v1/memories/{memory}"),
    Asked("GET", "/v1/memories/{memory}", names={"memory": UNKNOWN}),
    Asked("PATCH", "/v1/memories/{memory}", {"text": "A dog."}),
    Asked("DELETE", "/v1/memories/{memory}"),
    Asked("DELETE", SESSION),
)


@pytest.fixture
def fake() -> FakeService:
    return FakeService()


@pytest.fixture
async def pair(fake: FakeService, database: Database) -> AsyncIterator[tuple[Side, Side]]:
    """The fake and the real service, each with an answered message, two summaries and a memory."""
    stage = set_stage(database)
    async with AsyncExitStack() as stack:
        transport = httpx.ASGITransport(app=fake.app())
        to_fake = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://localhost"))
        to_real = await stack.enter_async_context(stage.client())
        yield _filled_fake(fake, to_fake), await _filled(stage, to_real)


def _filled_fake(fake: FakeService, client: httpx.AsyncClient) -> Side:
    session = fake.add_session(1, messages=2)
    message = fake.messages[session][0]
    fake.scripts = [answer_of("Hello ", "back.")]
    fake.hits = [hit_out(message, session_id=session, highlights=[(0, 4)])]
    fake.summaries = [version_out(2, version=None, state="prepared"), version_out(1)]
    prepared, adopted = fake.summaries
    stretch = StretchToSummarise(from_position=1, through_position=1, message_count=1)
    shown = PreviewedMessage(position=1, role="user", form="whole", reason="", tokens=3, pinned=False)
    fake.preview = preview_out(shown, fired=["pruned"], summarise=stretch)
    memory = fake.memories.add("The cat is called Miso.")
    ids = {"id": session, "message": message.id, "run": str(message.run_id), "summary": adopted.id, "memory": memory}
    return Side(client, {**ids, "prepared": prepared.id})


async def _filled(stage: ApiStage, client: httpx.AsyncClient) -> Side:
    path = await open_session(client)
    turn = (await client.post(f"{path}/messages", json={"content": "hello"}, headers={"Idempotency-Key": "k0"})).json()
    session = path.rpartition("/")[2]
    owner_id = await stage.database.users.get_or_create("local")
    stored = await stage.database.sessions.get(owner_id, SessionId(UUID(session)))
    conversation = Conversation(stage.database, owner_id, stored)
    first, second = await conversation.messages()
    await conversation.adopt(first)
    prepared = await conversation.prepare(second)
    listed = (await client.get(f"{path}/summaries")).json()["data"]
    memory = (await client.post("/v1/memories", json={"text": "The cat is called Miso."})).json()["id"]
    ids = {"id": session, "message": str(first.id), "run": turn["run"]["id"], "summary": listed[1]["id"]}
    return Side(client, {**ids, "memory": memory, "prepared": str(prepared.id)})


async def test_the_fake_answers_every_route_as_the_service_does(pair: tuple[Side, Side]) -> None:
    fake, real = pair

    different = {}
    for asked in ASKED:
        answers = await fake.answer(asked), await real.answer(asked)
        heads = {f"{each.status} {each.media_type}" for each in answers}
        bodies = differences(*(each.body for each in answers))
        different[str(asked)] = [*(heads if len(heads) > 1 else ()), *bodies]

    assert {asked: found for asked, found in different.items() if found} == {}


def test_every_route_of_the_fake_is_compared(fake: FakeService) -> None:
    routes = {
        (method, route.path)
        for route in fake.app().routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert {(asked.method, asked.route) for asked in ASKED} == routes


def differences(fake: JsonValue, real: JsonValue) -> list[str]:
    """Return where two bodies differ in their keys, the order of them, or their types; null stands for any type."""
    left, right = dict(_types(fake)), dict(_types(real))
    if list(left) != list(right):
        return [f"{list(left)} is {list(right)}"]
    null = type(None).__name__
    return [
        f"{place}: {left[place]} is {right[place]}"
        for place in left
        if left[place] != right[place] and null not in {left[place], right[place]}
    ]


def _types(value: JsonValue, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the types of all values by their places; of a list its first item stands for all.

    Metadata and an agent's context policy may hold anything.
    """
    if isinstance(value, dict) and not place.endswith((".metadata", "[].context")):
        for key, item in value.items():
            yield from _types(item, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value[:1]:
            yield from _types(item, f"{place}[]")
    else:
        yield place, type(value).__name__
