"""Citations compared with the stored messages, and what nobody learns of another user's messages by them."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from fakes.command_stage import TALK
from fakes.conversations import Conversation, answer_message, open_conversation, user_message
from fakes.raw_sql import run_sql
from fakes.slack_delivery import take
from fakes.stage import make_tool_box
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.transactions import Statements
from throughline.db.database import Database
from throughline.db.search.analyzer import Analyzer
from throughline.db.search.repository import READ_CHARACTERS, snippet_of
from throughline.db.sessions.citations import (
    MOST_COMPARED_BYTES,
    MOST_COMPARED_MESSAGES,
    MOST_QUOTED_SPAN,
    CitationReader,
    CitationRepository,
)
from throughline.db.sessions.redaction import Redaction
from throughline.domain.basic_types import RunId
from throughline.domain.errors import NotFound
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.recall import CitationStatus, HistoryFilter, HistoryQuery
from throughline.domain.tool import ToolContext
from throughline.tools.recall import make_recall_tools
from throughline.tools.toolbox import ToolBox

VALID, MISSING, NOT_FOUND = CitationStatus


@dataclass
class CountedStatements:
    """Passes statements on and counts them."""

    inner: Statements
    count: int = 0

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self.count += 1
        return await self.inner.fetch(statement, **parameters)


def owner_of(talk: Conversation) -> CitationReader:
    return CitationReader(talk.session.id, talk.owner_id, talk.owner_id)


async def statuses(database: Database, reader: CitationReader, text: str) -> list[CitationStatus]:
    (found,) = await database.citations.check(reader, [text])
    return [citation.status for citation in found]


async def test_a_citation_is_valid_if_all_its_messages_exist(database: Database) -> None:
    talk = await open_conversation(database)
    await talk.say("one", "two", "three")

    found = await statuses(database, owner_of(talk), "[#1] [#3] [#1-#3] [#4] [#2-#4] [#0] [#3-#1] [#999999999]")

    assert found == [VALID] * 3 + [MISSING] * 5


async def test_a_quotation_is_looked_up_in_the_cited_messages(database: Database) -> None:
    talk = await open_conversation(database)
    call = ToolCall("c1", "grep", '{"pattern": "harbour"}')
    blocks = replace(user_message(""), content=(TextBlock("Kept in blocks"), ImageBlock("https://x.io/a.png")))
    await talk.store(
        user_message("We use a hash index."), answer_message("Noted: since it’s small.", tool_calls=(call,)), blocks
    )
    text = (
        'You said "we use a HASH index" [#1], "a tree index" [#1], "it\'s small" [#2], "grep" [#2] and "harbour" [#2]. '
        'So "we use … since it\'s small" [#1-#2], "since it\'s small … we use" [#1-#2], "kept in blocks" [#3], "x" [#9]'
    )

    found = await statuses(database, owner_of(talk), text)

    assert found == [VALID, NOT_FOUND, VALID, VALID, VALID, VALID, NOT_FOUND, VALID, MISSING]


async def test_a_redacted_message_holds_no_quotation_any_more(database: Database) -> None:
    talk = await open_conversation(database)
    (said,) = await talk.say("the secret is 42")
    reader, text = owner_of(talk), '"the secret is 42" [#1]'
    before = await statuses(database, reader, text)

    await database.messages.redact(Redaction(talk.owner_id, talk.session.id, said.id))

    assert (before, await statuses(database, reader, text)) == ([VALID], [NOT_FOUND])


async def test_another_session_is_looked_at_only_for_its_owner(database: Database) -> None:
    mine, my_other, foreign = [await open_conversation(database, owner) for owner in ("anna", "anna", "bert")]
    for talk in (mine, my_other, foreign):
        await talk.say("the harbour")
    text = " ".join(
        f'"the harbour" [#1 in session {session_id}] and "the sea" [#1 in session {session_id}].'
        for session_id in (mine.session.id, my_other.session.id, foreign.session.id, UUID(int=5))
    )

    found = await statuses(database, owner_of(mine), text)

    assert found == [VALID, NOT_FOUND, VALID, NOT_FOUND, MISSING, MISSING, MISSING, MISSING]


async def test_a_foreign_session_is_not_read_through_the_callers_own_claim(database: Database) -> None:
    """The session of the text belongs to another user than the caller says."""
    foreign, mine = await open_conversation(database, "bert"), await open_conversation(database, "anna")
    await foreign.say("the harbour")

    found = await statuses(database, CitationReader(foreign.session.id, mine.owner_id, mine.owner_id), "[#1]")

    assert found == [MISSING]


async def test_a_participant_learns_nothing_of_the_owners_other_sessions(database: Database) -> None:
    anna = await open_conversation(database, "anna")
    other, berts = await open_conversation(database, "anna"), await open_conversation(database, "bert")
    for talk in (anna, other, berts):
        await talk.say("the harbour")
    text = f"[#1] [#1 in session {other.session.id}] [#1 in session {berts.session.id}]"

    for_owner = await statuses(database, owner_of(anna), text)
    for_participant = await statuses(database, replace(owner_of(anna), reader_id=berts.owner_id), text)

    assert for_owner == [VALID, VALID, MISSING]
    assert for_participant == [VALID, MISSING, VALID]


async def test_people_of_one_channel_learn_nothing_of_private_sessions(database: Database, database_url: str) -> None:
    shared = await take(database, "hello", channel="C0GENERAL", user="U0ANNA001")
    await take(database, "me too", channel="C0GENERAL", user="U0BERT001", thread=True)
    of_anna = await take(database, "a secret", channel="D0ANNA001", user="U0ANNA001")
    of_bert = await take(database, "another", channel="D0BERT001", user="U0BERT001")
    channel, anna, bert = [await database.messages.find_owner(one) for one in (shared, of_anna, of_bert)]
    for session in (shared, of_anna, of_bert):
        await run_sql(database_url, TALK, session, 2, '{"1": "the secret"}')
    text = " ".join(f'"the secret" [#1 in session {session}].' for session in (shared, of_anna, of_bert))

    found = [
        await statuses(database, CitationReader(shared, channel, reader), text) for reader in (channel, anna, bert)
    ]

    assert len({channel, anna, bert}) == 3
    assert found == [[VALID, MISSING, MISSING], [VALID, VALID, MISSING], [VALID, MISSING, VALID]]


async def test_texts_are_checked_in_one_statement_and_none_without_citations(database: Database) -> None:
    talk = await open_conversation(database)
    await talk.say("one", "two")
    counted = CountedStatements(database.citations._statements)  # noqa: SLF001  # what the repository asks
    citations = CitationRepository(counted)

    none = await citations.check(owner_of(talk), ["no citation", "`[#1]`", ""])
    before = counted.count
    some = await citations.check(owner_of(talk), ['"one" [#1]', "", f'"two" [#1] [#2 in session {UUID(int=5)}]'])

    assert (none, before, counted.count) == (((), (), ()), 0, 1)
    assert [len(found) for found in some] == [1, 0, 2]


async def test_quotations_beyond_the_limits_are_not_compared(database: Database) -> None:
    talk = await open_conversation(database)
    await talk.say("one", *["more"] * MOST_QUOTED_SPAN)
    huge = replace(answer_message("x" * MOST_COMPARED_BYTES), role=Role.TOOL, tool_call_id="c1", name="dump")
    stored = await talk.store(huge, user_message("behind"))
    text = (
        f'"nowhere" [#1-#{MOST_QUOTED_SPAN}] and "nowhere" [#1-#{MOST_QUOTED_SPAN + 1}]; '
        f'"nowhere" [#{stored[0].position}] and "nowhere" [#{stored[1].position}]'
    )

    found = await statuses(database, owner_of(talk), text)

    assert found == [NOT_FOUND, VALID, VALID, VALID]


async def test_a_page_compares_a_limited_number_of_messages(database: Database, database_url: str) -> None:
    talk, last = await open_conversation(database), MOST_COMPARED_MESSAGES + 1
    await run_sql(database_url, TALK, talk.session.id, last, "{}")
    texts = [f'"nowhere" [#{position}]' for position in range(1, last + 1)]

    found = await database.citations.check(owner_of(talk), texts)

    assert [of_text[0].status for of_text in found] == [NOT_FOUND] * MOST_COMPARED_MESSAGES + [VALID]


@pytest.mark.parametrize("text", ["[#1]", "😀 [#1]", "```\n[#9]\n```\n\n[#1]"])
async def test_a_checked_citation_keeps_its_range_and_names_the_session(database: Database, text: str) -> None:
    talk = await open_conversation(database)
    await talk.say("one")

    ((found,),) = await database.citations.check(owner_of(talk), [text])

    assert text[found.start : found.end] == "#1"
    assert (found.from_position, found.to_position, found.session_id) == (1, 1, talk.session.id)


ANALYZER = Analyzer("english")
FILLER = "filler " * (2 * READ_CHARACTERS // len("filler "))


def highlighted(text: str, *words: str) -> list[str]:
    shown = snippet_of(ANALYZER, text, {ANALYZER.word(word) for word in words})
    return [shown.text[start:end] for start, end in shown.highlights]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Happy anchors weigh.", ["happiness", "anchor"]),
        ("See app/db/rows.py.", ["rows"]),
        ("0xDEADBEEF", ["0xdeadbeef"]),
    ],
)
def test_a_match_deep_in_a_long_text_is_shown(said: str, asked: list[str]) -> None:
    assert highlighted(f"{FILLER}{said} {FILLER}", *asked) == highlighted(said, *asked) != []


def test_a_word_is_no_match_because_a_piece_of_the_text_ends_in_it() -> None:
    """The piece around the match begins inside of a long word, whose rest looks like another match."""
    text = f"{FILLER}{'anchor-' * 100} vault {FILLER}"

    assert "vault" in highlighted(text, "vault", "hor")
    assert "hor" not in highlighted(text, "vault", "hor")


def test_of_a_text_that_matches_nowhere_the_beginning_is_shown() -> None:
    assert snippet_of(ANALYZER, FILLER, {"anchor"}).text.startswith("filler filler")


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
        filters = [HistoryFilter(), HistoryFilter(after=1), HistoryFilter(before=9), HistoryFilter(author="anna")]
        only = self.random.choice(filters)
        is_before_turn = self.random.random() < 0.3
        query = HistoryQuery(self.query(), 20, only, is_before_turn=is_before_turn, is_plain=is_before_turn)
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
