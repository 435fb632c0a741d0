"""Many users and random requests: nobody is ever shown a row of somebody else's."""

import json
import random
from dataclasses import dataclass
from uuid import UUID

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.tool_box import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.basic_types import RunId
from throughline.domain.errors import NotFound
from throughline.domain.message import ToolCall
from throughline.domain.recall import HistoryFilter, HistoryQuery
from throughline.domain.tool import ToolContext
from throughline.tools.recall import make_recall_tools
from throughline.tools.toolbox import ToolBox

USERS = 50
WORDS = ("harbour", "ledger", "comet", "falcon", "author:anna", '"the secret"', "role:user", "secret", "#1")


@dataclass
class World:
    """All users' conversations, each message with its owner's mark in it."""

    random: random.Random
    mine: list[list[Conversation]]
    box: ToolBox

    def marks_in(self, text: str) -> set[str]:
        return {f"mark-{number:02d}" for number in range(USERS) if f"mark-{number:02d}" in text}

    def query(self) -> str:
        return " ".join(self.random.choices((*WORDS, f"mark-{self.random.randrange(USERS):02d}"), k=3))

    async def search(self, who: int, whose: int) -> str:
        """Search with who's rights, in one of whose sessions or in all."""
        session = self.random.choice([None, self.random.choice(self.mine[whose]).session.id])
        behind = HistoryFilter(
            behind_cursor_of=self.random.choice(self.mine[self.random.choice([who, whose])]).session.id
        )
        only = self.random.choice([HistoryFilter(), HistoryFilter(after=1), HistoryFilter(author="anna"), behind])
        is_quick = self.random.random() < 0.3
        query = HistoryQuery(self.query(), 20, only, only_indexed=is_quick, is_plain=is_quick)
        history = self.mine[who][0].database.history
        try:
            found = await history.search(self.mine[who][0].owner_id, session, query)
        except NotFound:
            assert who != whose
            return ""
        return " ".join(f"{hit.message.content} {hit.snippet}" for hit in found.hits)

    async def recall(self, who: int, whose: int) -> str:
        """Call a recall tool as a turn of who's would, naming one of whose sessions."""
        own, named = self.random.choice(self.mine[who]), self.random.choice(self.mine[whose])
        context = ToolContext(
            own.session.id,
            own.owner_id,
            RunId(UUID(int=1)),
            "run:call",
            may_recall_all=self.random.random() < 0.7,
        )
        name, arguments = self.random.choice([
            ("search_history", {"query": self.query()}),
            ("read_history", {"from_position": 1, "to_position": 9, "session": str(named.session.id)}),
            ("read_output", {"position": 1, "session": str(named.session.id)}),
        ])
        return (await self.box.run(ToolCall("c", name, json.dumps(arguments)), context)).text


async def make_world(database: Database) -> World:
    mine = []
    for number in range(USERS):
        sessions = [await open_conversation(database, f"user-{number}") for _ in range(2)]
        for session in sessions:
            await session.say(f"The secret of the harbour is mark-{number:02d}.", "comet ledger falcon", "secret")
            await database.history.index_session(session.session.id)
        mine.append(sessions)
    tools = make_recall_tools(database.history, len)
    return World(random.Random(11), mine, make_tool_box((), HANG_SECONDS, 100_000, further=tools))


@pytest.mark.slow
@pytest.mark.parametrize("requests", [250, pytest.param(1_000, marks=pytest.mark.proof)])
async def test_random_requests_of_many_users_show_no_foreign_row(database: Database, requests: int) -> None:
    world = await make_world(database)
    seen: list[tuple[str, set[str]]] = []

    for _ in range(requests):
        who = world.random.randrange(USERS)
        whose = who if world.random.random() < 0.5 else world.random.randrange(USERS)
        ask = world.random.choice([world.search, world.recall])
        seen.append((f"mark-{who:02d}", world.marks_in(await ask(who, whose))))

    assert [(mark, marks) for mark, marks in seen if marks - {mark}] == []
    assert sum(1 for mark, marks in seen if mark in marks) > requests / 4
