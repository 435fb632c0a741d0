"""`/agent` on a stage of the outbox: asked directly, with summaries that a test lets end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.scripted_turns import REPORT, played
from fakes.slack_delivery import IDENTITY, DeliveryStage, dispatcher_of
from fakes.slack_double import TEAM, Posted, Said
from fakes.slack_double.payloads import click
from fakes.stage import AGENT, Stage, make_tool_box, open_stage
from fakes.waiting import until_found
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ModelUnavailable
from throughline.domain.message import ToolCall
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.slack.answers.decisions import ClickHandler
from throughline.slack.bolt import CommandReply
from throughline.slack.commands import Commands
from throughline.slack.config import SlackServices
from throughline.slack.store.conversations import Asker, ThreadSession
from throughline.slack.store.database import slack_database
from throughline.slack.store.people import SlackId
from throughline.turn.summary.reread import SummaryRequest

ANNA, DIRECT = "U0ANNA001", "D0ANNA001"


@dataclass
class Asked:
    """The commands, and what was summarised and sent later."""

    stage: DeliveryStage
    commands: Commands
    may_end: asyncio.Event
    refuses: asyncio.Event
    focuses: list[str] = field(default_factory=list)
    later: list[tuple[str, CommandReply]] = field(default_factory=list)

    async def __call__(self, text: str, *, user: str = ANNA, channel: str = DIRECT) -> CommandReply:
        body: dict[str, object] = {"user_id": user, "team_id": TEAM, "channel_id": channel, "text": text}
        return await self.commands.answer({**body, "response_url": "https://hooks.example/1"})

    async def latest(self, user: UserId, channel: str = DIRECT) -> ThreadSession:
        found = await self.stage.slack.conversations.latest(TEAM, channel, Asker(SlackId(TEAM, ANNA), user))
        assert isinstance(found, ThreadSession)
        return found


@asynccontextmanager
async def commands_on(outgoing: DeliveryStage) -> AsyncIterator[Asked]:
    """Answer commands on the stage; a summary ends once `may_end` is set, and badly once `refuses` is."""
    may_end, refuses = asyncio.Event(), asyncio.Event()
    may_end.set()
    focuses: list[str] = []
    later: list[tuple[str, CommandReply]] = []
    database: Database = outgoing.database

    async def report(owner: UserId, session: SessionId) -> ContextReport:
        await database.sessions.get(owner, session)
        return REPORT

    async def summarize(owner: UserId, session: SessionId, request: SummaryRequest) -> CompactionResult:
        focuses.append(request.instructions)
        await may_end.wait()
        if refuses.is_set():
            raise ModelUnavailable("The summary model is away.")
        return CompactionResult(CompactionOutcome.ADOPTED, await database.sessions.get(owner, session), "", 900, 300)

    async def respond(url: str, shown: CommandReply) -> None:
        later.append((url, shown))

    services = SlackServices(database, outgoing.slack, report, summarize, outgoing.clock)
    commands = Commands(services, IDENTITY, respond)
    try:
        yield Asked(outgoing, commands, may_end, refuses, focuses, later)
    finally:
        await commands.close()


DELETES = ToolCall("call_1", "delete", '{"file": "<!here> ```a.txt"}')
ASKS = ToolCall("call_2", "ask_user", '{"question": "Which *colour*, <@U0BERT001>?", "options": ["red", "dark blue"]}')
CAREFUL = replace(AGENT, tools=("delete", "ask_user"), needs_approval=frozenset({"delete"}))
BERT = "U0BERT001"


@dataclass
class WaitingStage:
    """What a test has at hand: the double, the model's script, and the people who click."""

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
