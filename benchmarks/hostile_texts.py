"""Clients that send a service texts that are made to be slow to read: an attack of `benchmarks.hostile`.

Each has a session with the default agent, sends one hostile text of about a megabyte after the other, asks a short
question, and has a summary made now and then. The clients belong to a few users.
"""

import asyncio
import itertools
import random
import time
from dataclasses import dataclass

import httpx

TEXT_BYTES = 1_000_000
HOSTILE_USERS = 8
SUMMARY_EVERY = 4
"""Messages of a client between two summaries on demand."""


def hostile_texts(size: int) -> dict[str, str]:
    """Return one text of about `size` bytes for each kind."""
    chance = random.Random(1)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return {
        "blanks": "x" + " " * size + "x",
        "angle brackets": "<" + " " * 60_000 + "x" + "<" * size,
        "quotes": "\"'" * (size // 4),
        "digits": "1 " * (size // 2),
        "cjk": "漢字仮名" * (size // 12),
        "base64": "".join(chance.choices(letters, k=size)),
        "nested json": '{"a":[' * (size // 8) + "]}" * (size // 8),
        "zalgo": ("a" + "\u0301\u0327\u0335" * 5) * (size // 31),
    }


class BrokenAnswer(Exception):
    """The service answered with an internal error."""


async def send_texts(client: httpx.AsyncClient, clients: int, seconds: float) -> None:
    """Let so many clients talk for so long; what waits then is waited for. Raises BrokenAnswer."""
    texts, until = tuple(hostile_texts(TEXT_BYTES).values()), time.monotonic() + seconds

    async def talk(number: int) -> None:
        user = _User(client, f"hostile-{number % HOSTILE_USERS}")
        session = await user.open_session()
        for turn in itertools.count(number):
            if time.monotonic() >= until:
                return
            await user.post(f"{session}/messages", {"content": texts[turn % len(texts)]})
            await user.post(f"{session}/messages", {"content": "ok?"})
            if turn % SUMMARY_EVERY == 0:
                await user.post(f"{session}/summarize", {})

    await asyncio.gather(*map(talk, range(clients)))


@dataclass(frozen=True, slots=True)
class _User:
    """One of the service's users."""

    client: httpx.AsyncClient
    name: str

    async def post(self, path: str, body: dict[str, str]) -> httpx.Response:
        answer = await self.client.post(path, json=body, headers={"On-Behalf-Of": self.name})
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            raise BrokenAnswer(f"{path}: {answer.text[:500]}")
        return answer

    async def open_session(self) -> str:
        opened = await self.post("/v1/sessions", {"agent": "assistant"})
        return f"/v1/sessions/{opened.raise_for_status().json()['id']}"
