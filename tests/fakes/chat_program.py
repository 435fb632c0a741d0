"""A chat program that speaks to OpenAI's interface: it keeps the whole chat, and sends all of it with each message."""

from collections.abc import Mapping
from typing import Any

import httpx

from fakes.openai_stage import OpenAIStage

NAME = "chat-1"


class Chat:
    """One chat of the program."""

    def __init__(self, stage: OpenAIStage, header: str = "X-Session-Id", name: str = NAME) -> None:
        self.stage = stage
        self.headers = {header: name}
        self.messages: list[Any] = []

    async def post(
        self, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send the chat as it stands."""
        return await self.stage.http.post(
            "/v1/chat/completions",
            json={"model": "assistant", "messages": self.messages, **(body or {})},
            headers={**self.headers, **(headers or {})},
        )

    async def say(self, text: str, **body: object) -> httpx.Response:
        """Send a message of the user, and keep its answer."""
        self.messages.append({"role": "user", "content": text})
        response = await self.post(body)
        assert response.status_code == httpx.codes.OK, response.text
        self.messages.append(response.json()["choices"][0]["message"])
        return response

    def text(self) -> str:
        return str(self.messages[-1]["content"])
