"""`/agent` on a stage of the outbox: asked directly, with summaries that a test lets end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fakes.scripted_turns import REPORT
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import TEAM
from fakes.slack_stage import IDENTITY
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import ModelUnavailable
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.slack.bolt import CommandReply
from throughline.slack.commands import Commands
from throughline.slack.config import SlackServices
from throughline.slack.store.conversations import Asker, Conversation
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

    async def latest(self, user: UserId, channel: str = DIRECT) -> Conversation:
        found = await self.stage.slack.conversations.latest(TEAM, channel, Asker(SlackId(TEAM, ANNA), user))
        assert isinstance(found, Conversation)
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

    async def summarize(owner: UserId, session: SessionId, wish: SummaryRequest) -> CompactionResult:
        focuses.append(wish.instructions)
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
