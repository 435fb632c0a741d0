"""A user's sessions with the key that serves them, and the access tokens that the key makes."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import httpx

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from throughline.db.database import Database

UNKNOWN = str(UUID(int=7))
SESSION = "/v1/sessions/{session_id}"
BODIES: dict[tuple[str, str], dict[str, object]] = {
    ("PATCH", SESSION): {"title": "t"},
    ("POST", f"{SESSION}/branch"): {"at": 0},
    ("POST", f"{SESSION}/messages"): {"content": "hi"},
    ("POST", f"{SESSION}/context/preview"): {},
    ("POST", f"{SESSION}/summarize"): {},
    ("POST", f"{SESSION}/summarize/estimate"): {},
    ("POST", "/v1/sessions"): {"agent": "assistant"},
}


@dataclass(frozen=True)
class Owned:
    """What one user has."""

    session_id: str
    run_id: str
    message_id: str = UNKNOWN
    memory_id: str = UNKNOWN

    def path(self, template: str) -> str:
        ids = {"session_id": self.session_id, "run_id": self.run_id, "message_id": self.message_id}
        ids["memory_id"] = self.memory_id
        ids["response_id"] = f"resp_{UUID(self.run_id).hex}"
        ids["conversation"] = f"conv_{UUID(self.session_id).hex}"
        ids["item"] = f"msg_{UUID(self.message_id).hex}"
        return template.replace(":path", "").format(
            **ids, summary_id=UNKNOWN, model="assistant", name="nobody", key=UNKNOWN
        )


async def owned_by(client: httpx.AsyncClient) -> Owned:
    session = await open_session(client)
    answered = await client.post(f"{session}/messages", json={"content": "my secret"})
    memory = await client.post("/v1/memories", json={"text": "my secret"})
    answer = answered.json()
    return Owned(session.rpartition("/")[2], answer["run"]["id"], answer["message"]["id"], memory.json()["id"])


@dataclass
class TokenPage:
    """Two sessions of anna, with the key that serves her."""

    stage: ApiStage
    key: str
    first: Owned
    second: Owned

    async def token(self, *sessions: Owned, **body: object) -> str:
        """Return a token for these sessions, for all if there is none."""
        response = await self.ask({"session_ids": [one.session_id for one in sessions] or None, **body})
        assert response.status_code == 201, response.text
        return str(response.json()["token"])

    async def ask(self, body: dict[str, object], *, key: str = "", user: str = "") -> httpx.Response:
        async with self.stage.client(key=key or self.key, user=user) as client:
            return await client.post("/v1/tokens", json=body)

    async def get(self, path: str, token: str = "") -> httpx.Response:
        async with self.stage.client(key=token) as client:
            return await client.get(path)


@contextlib.asynccontextmanager
async def open_page(database: Database) -> AsyncIterator[TokenPage]:
    """Open two sessions of anna, each with a message and its answer."""
    stage = set_stage(database, KEYED)
    key = await stage.key("anna")
    async with stage.client(key=key) as anna:
        first, second = await owned_by(anna), await owned_by(anna)
    yield TokenPage(stage, key, first, second)
    await stage.turns.settle()
