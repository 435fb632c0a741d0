"""One session that goes through every interface: one history, and each interface shows the turns of the others."""

import random
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest

from api.test_isolation import linked
from fakes.ag_ui_client import AgUiThread
from fakes.ai_sdk_client import UIChat
from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Say, Step
from fakes.slack_delivery import take
from fakes.waiting import until_found
from throughline.ag_ui.front_end import AG_UI
from throughline.ai_sdk.front_end import AI_SDK
from throughline.cli.client import ServiceClient
from throughline.db.database import Database
from throughline.domain.prompt import ModelRequest
from throughline.langgraph_api.front_end import LANGGRAPH_API

SLACK_USER, CHANNEL, ROUNDS = "U0LOCAL01", "D0LOCAL01", 2


def answer(request: ModelRequest) -> Step:
    """Repeat what the user said."""
    return Say(f"You said: {request.prompt.messages[-1].content}")


class Person:
    """Somebody who continues one session, begun in Slack, in each interface."""

    def __init__(self, stage: OpenAIStage, session: str) -> None:
        self.stage, self.session = stage, session
        self.thread = AgUiThread(stage.http, thread_id=session)
        self.chat = UIChat(stage.http, session)
        self.conversation = f"conv_{UUID(session).hex}"

    def interfaces(self) -> dict[str, Callable[[str], Awaitable[object]]]:
        """Return the function that sends a message, by interface."""
        return {
            "native": self.over_rest,
            "responses": self.over_responses,
            "chat completions": self.over_completions,
            "AG-UI": self.thread.say,
            "AI SDK": self.chat.say,
            "LangGraph": self.over_langgraph,
            "Slack": self.in_slack,
            "command line": self.on_command_line,
        }

    async def over_rest(self, text: str) -> None:
        await self.post(f"/v1/sessions/{self.session}/messages", {"content": text})

    async def over_responses(self, text: str) -> None:
        await self.post("/v1/responses", {"model": "assistant", "input": text, "conversation": self.conversation})

    async def over_completions(self, text: str) -> None:
        body = {"model": "assistant", "messages": [{"role": "user", "content": text}]}
        await self.post("/v1/chat/completions", {**body, "metadata": {"session_id": self.session}})

    async def over_langgraph(self, text: str) -> None:
        given = {"messages": [{"type": "human", "content": text}]}
        path = f"/langgraph/threads/{self.session}/runs/wait"
        await self.post(path, {"assistant_id": "assistant", "input": given})

    async def in_slack(self, text: str) -> None:
        await take(self.stage.database, text, channel=CHANNEL, user=SLACK_USER, thread=True)

    async def on_command_line(self, text: str) -> None:
        client = ServiceClient(self.stage.http, place="the service")
        async with client.post_message(self.session, text, key=str(uuid4())) as response:
            await response.aread()

    async def post(self, path: str, body: dict[str, object]) -> None:
        (await self.stage.http.post(path, json=body)).raise_for_status()

    async def stored(self) -> list[str]:
        """Return the texts of all messages."""
        listed = await self.stage.http.get(f"/v1/sessions/{self.session}/messages", params={"limit": 200})
        return [message["content"] for message in listed.json()["data"]]

    async def shown(self) -> dict[str, list[object]]:
        """Return the texts that a new client sees, by interface."""
        thread = AgUiThread(self.stage.http, thread_id=self.session)
        await thread.run("reload")
        chat = (await self.stage.http.get(f"/ai-sdk/assistant/{self.session}/messages")).json()
        state = (await self.stage.http.get(f"/langgraph/threads/{self.session}/state")).json()
        items = (await self.stage.http.get(f"/v1/conversations/{self.conversation}/items?order=asc&limit=100")).json()
        return {
            "AG-UI": thread.texts(),
            "AI SDK": [part["text"] for message in chat for part in message["parts"] if part["type"] == "text"],
            "LangGraph": [message["content"] for message in state["values"]["messages"]],
            "responses": [item["content"][0]["text"] for item in items["data"]],
        }


@pytest.mark.parametrize("seed", range(3))
async def test_each_interface_continues_what_the_others_said(database: Database, seed: int) -> None:
    async with open_openai_stage(database, front_ends=(AG_UI, AI_SDK, LANGGRAPH_API)) as stage:
        stage.model.by_request = answer
        await linked(stage.api, SLACK_USER, "local")
        begun = await take(database, "slack begins", channel=CHANNEL, user=SLACK_USER)
        person, said = Person(stage, str(begun)), ["slack begins"]
        order = [*person.interfaces().items()] * ROUNDS
        random.Random(seed).shuffle(order)
        for number, (name, send) in enumerate(order):
            said.append(f"{name} {number}")
            await send(said[-1])

        history = [text for one in said for text in (one, f"You said: {one}")]
        await until_found(lambda: is_stored(person, len(history)))
        assert await person.stored() == history
        assert await person.shown() == dict.fromkeys(("AG-UI", "AI SDK", "LangGraph", "responses"), history)


async def is_stored(person: Person, count: int) -> bool:
    return len(await person.stored()) >= count
