"""Turns from Slack that wait for people: real turns of a scripted model, a dispatcher, and clicks on buttons."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.played_turns import played
from fakes.slack_commands import Asked
from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import Posted, Said
from fakes.slack_double.payloads import click
from fakes.slack_stage import IDENTITY
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_box import make_tool_box
from fakes.waiting import until_found
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.slack.config import SlackServices
from throughline.slack.decisions import ClickHandler
from throughline.slack.store.database import slack_database

DELETES = ToolCall("call_1", "delete", '{"file": "<!here> ```a.txt"}')
ASKS = ToolCall("call_2", "ask_user", '{"question": "Which *colour*, <@U0BERT001>?", "options": ["red", "dark blue"]}')
CAREFUL = replace(AGENT, tools=("delete", "ask_user"), needs_approval=frozenset({"delete"}))
ANNA, BERT = "U0ANNA001", "U0BERT001"


@dataclass
class WaitingStage:
    """What a test has at hand: the double, the model's script, and whoever clicks."""

    outgoing: DeliveryStage
    turns: Stage
    ask: Asked
    services: SlackServices
    decisions: ClickHandler
    deleted: list[str] = field(default_factory=list)

    @property
    def posted(self) -> list[Posted]:
        return self.outgoing.posted

    @property
    def notices(self) -> list[tuple[str, str]]:
        """Who was told what alone."""
        return [(args["user"], args["text"]) for _, args in self.outgoing.double.workspace.responses]

    async def take(self, said: Said) -> Said:
        await self.outgoing.take(said)
        return said

    async def asked(self, count: int = 1) -> Posted:
        """Return the last message with buttons or without, once so many questions are asked and put aside."""
        statement = """
            select from slack_deliveries d join slack_parts p on p.delivery_id = d.id
            where d.asked_wait > 0 and d.lease_until is null and p.call_id is not null and p.ts is not null
            offset $1
        """

        async def is_asked() -> bool:
            return bool(await self.outgoing.rows(statement, count - 1))

        await until_found(is_asked)
        return next(message for message in reversed(self.posted) if message.blocks)

    async def click(self, choice: str, message: Posted, *, user: str = ANNA) -> None:
        await self.decisions.handle(self.payload(choice, message, user=user))

    def payload(self, choice: str, message: Posted, *, user: str = ANNA) -> dict[str, Any]:
        """Return the payload of a click on the button; the message may have lost it since."""
        values = [button["value"] for button in buttons(message)]
        value = next((value for value in values if value.endswith(f":{choice}")), "")
        return click(value, user=user, channel=message.channel, ts=message.ts, thread_ts=message.thread_ts)

    def decisions_on(self, database: Database) -> ClickHandler:
        """Return a handler of clicks that uses another connection to the same database."""
        services = replace(self.services, database=database, slack=slack_database(database, "assistant"))
        return ClickHandler(services, self.outgoing.services.calls, IDENTITY)

    async def until_delivered(self, count: int = 1) -> None:
        async def is_delivered() -> bool:
            return bool(
                await self.outgoing.rows("select from slack_deliveries where status = 'delivered' offset $1", count - 1)
            )

        await until_found(is_delivered)

    async def statuses(self) -> list[object]:
        return [status for (status,) in await self.outgoing.rows("select status from runs order by seq")]

    @asynccontextmanager
    async def delivering(self, name: str = "one") -> AsyncIterator[None]:
        """Deliver inside the block."""
        async with dispatcher_of(self.outgoing, name).running():
            yield


def buttons(message: Posted) -> list[dict[str, Any]]:
    return [button for block in _blocks(message) if block["type"] == "actions" for button in block["elements"]]


def shown(message: Posted) -> str:
    """Return everything that the blocks of a message show."""
    return "\n".join(_texts(_blocks(message)))


def _blocks(message: Posted) -> Sequence[dict[str, Any]]:
    assert isinstance(message.blocks, list)
    return message.blocks


def _texts(inside: object) -> list[str]:
    if isinstance(inside, dict):
        own = [inside["text"]] if isinstance(inside.get("text"), str) else []
        return own + [text for value in inside.values() for text in _texts(value)]
    return [text for value in inside for text in _texts(value)] if isinstance(inside, list) else []


@asynccontextmanager
async def waiting_stage(outgoing: DeliveryStage, ask: Asked) -> AsyncIterator[WaitingStage]:
    """Play turns on the stage; nothing is delivered before `delivering`."""
    deleted: list[str] = []

    def delete(file: str) -> str:
        """Delete a file.

        Args:
            file: its name
        """
        deleted.append(file)
        return f"deleted {file}"

    turns = await open_stage(outgoing.database, agent=CAREFUL, tools=make_tool_box(further=(delete,)))
    services = ask.commands._services  # noqa: SLF001  # those of the commands
    decisions = ClickHandler(services, outgoing.services.calls, IDENTITY)
    async with played(turns):
        try:
            yield WaitingStage(outgoing, turns, ask, services, decisions, deleted)
        finally:
            await asyncio.sleep(0)
            await decisions.close()
