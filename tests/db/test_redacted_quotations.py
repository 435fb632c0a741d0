"""Redaction and erasure reach what recall tools quoted, in all sessions, also what is only about to be stored."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.sessions.quotations import LOOK_AGAIN
from throughline.db.sessions.redaction import MARKER, Redaction
from throughline.domain.basic_types import RunId
from throughline.domain.errors import SessionBusy
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.run import Lease
from throughline.domain.tool import ToolContext
from throughline.tools.recall import make_recall_tools

SECRET = "tangelo42"  # the word that has to go
LONG = " ".join(f"word{number}" for number in range(40)) + f" {SECRET} " + "filler " * 40


@dataclass
class Recalled:
    """Recall tools over the real history, counting four characters as a token."""

    database: Database

    async def read_history(self, here: Conversation, first: int, last: int, *, run_id: RunId, session: str = "") -> str:
        read = make_recall_tools(self.database.history, lambda text: len(text) // 4)[1]
        return str(await read(first, last, context=self._context(here, run_id), session=session))  # type: ignore[misc]  # Callable[..., object]: a coroutine function

    async def read_output(self, here: Conversation, position: int, offset: int, *, run_id: RunId) -> str:
        read = make_recall_tools(self.database.history, lambda text: len(text) // 4)[2]
        return str(await read(position, context=self._context(here, run_id), offset=offset))  # type: ignore[misc]  # as above

    def _context(self, here: Conversation, run_id: RunId) -> ToolContext:
        return ToolContext(
            session_id=here.session.id, run_id=run_id, idempotency_key="k", owner_id=here.owner_id, may_recall_all=True
        )


async def store_result(conversation: Conversation, lease: Lease, name: str, text: str) -> None:
    await store_results(conversation, lease, {name: text})


async def store_results(conversation: Conversation, lease: Lease, texts: Mapping[str, str]) -> None:
    append = conversation.database.messages.append_message
    calls = tuple(ToolCall(f"c{name}", name, "{}") for name in texts)
    await append(lease, "assistant:0", answer_message("", tool_calls=calls))
    for at, (name, text) in enumerate(texts.items()):
        result = NewMessage(Role.TOOL, text, Source.API, tool_call_id=f"c{name}", name=name)
        await append(lease, f"tool:0:{at}", result)


async def tables_with(url: str, word: str) -> list[str]:
    tables = await run_sql(url, "select schemaname || '.' || tablename from pg_tables where schemaname = 'public'")
    names = [str(name) for (name,) in tables]
    return [
        name for name in names if await run_sql(url, f"select 1 from {name} t where t::text ilike '%{word}%' limit 1")
    ]


async def test_a_quotation_of_a_quotation_goes_with_the_redacted_message(database: Database, database_url: str) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    secret = (await conversation.say("one", LONG))[1]
    claimed = await conversation.start()
    quoted = await recalled.read_history(conversation, 2, 2, run_id=claimed.run.id)
    assert SECRET in quoted
    await store_result(conversation, claimed.lease, "read_history", quoted)
    await conversation.end(claimed.lease)
    claimed = await conversation.start()
    again = await recalled.read_output(conversation, 4, 300, run_id=claimed.run.id)
    assert SECRET in again
    await store_result(conversation, claimed.lease, "read_output", again)
    await conversation.end(claimed.lease)

    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, secret.id))

    assert await tables_with(database_url, SECRET) == []


async def test_a_turn_elsewhere_that_has_read_the_message_cannot_store_it_once_redacted(
    database: Database, database_url: str
) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    secret = (await conversation.say("one", f"The code is {SECRET}."))[1]
    other = await open_conversation(database)
    claimed = await other.start()
    quoted = await recalled.read_history(other, 2, 2, run_id=claimed.run.id, session=str(conversation.session.id))
    assert SECRET in quoted

    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, secret.id))
    await store_result(other, claimed.lease, "read_history", quoted)
    await other.end(claimed.lease)

    assert await tables_with(database_url, SECRET) == []


async def test_what_a_cancelled_turn_was_asked_can_be_redacted_with_the_session_kept(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database, title="kept")
    running = await conversation.start()
    queued = await conversation.submit(f"The code is {SECRET}.")
    await database.runs.request_cancel(conversation.owner_id, queued.run.id)
    await conversation.end(running.lease)

    messages = await conversation.messages()
    for message in messages:
        await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, message.id))

    assert await tables_with(database_url, SECRET) == []


async def test_an_erased_session_leaves_nothing_in_what_other_sessions_recalled_of_it(
    database: Database, database_url: str
) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    await conversation.say("one", f"The code is {SECRET}.")
    erased, other = conversation.session.id, await open_conversation(database)
    claimed = await other.start()
    quoted = await recalled.read_history(other, 2, 2, run_id=claimed.run.id, session=str(erased))
    await store_result(other, claimed.lease, "read_history", quoted)
    await other.end(claimed.lease)

    await database.sessions.delete(conversation.owner_id, erased)

    assert await tables_with(database_url, SECRET) == []


async def test_a_turn_that_has_read_a_session_cannot_store_of_it_after_its_erasure(
    database: Database, database_url: str
) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    await conversation.say("one", f"The code is {SECRET}.")
    erased, other = conversation.session.id, await open_conversation(database)
    claimed = await other.start()
    quoted = await recalled.read_history(other, 2, 2, run_id=claimed.run.id, session=str(erased))

    await database.sessions.delete(conversation.owner_id, erased)
    await store_result(other, claimed.lease, "read_history", quoted)
    await other.end(claimed.lease)

    assert await tables_with(database_url, SECRET) == []
    assert (await other.messages())[-1].content == LOOK_AGAIN
    assert (await other.messages())[-1].metadata == {"is_error": True}


async def test_a_session_is_not_erased_while_a_turn_that_quotes_it_goes_on_elsewhere(database: Database) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    await conversation.say("one")
    other = await open_conversation(database)
    claimed = await other.start()
    quoted = await recalled.read_history(other, 1, 1, run_id=claimed.run.id, session=str(conversation.session.id))
    await store_result(other, claimed.lease, "read_history", quoted)

    with pytest.raises(SessionBusy, match=str(claimed.run.id)):
        await database.sessions.delete(conversation.owner_id, conversation.session.id)
    await other.end(claimed.lease)
    await database.sessions.delete(conversation.owner_id, conversation.session.id)

    assert (await other.messages())[-1].content == MARKER


async def test_the_marker_of_a_redacted_message_can_be_read_and_stored_again(database: Database) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    secret = (await conversation.say("one", f"The code is {SECRET}."))[1]
    other = await open_conversation(database)
    claimed = await other.start()
    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, secret.id))
    quoted = await recalled.read_history(other, 1, 2, run_id=claimed.run.id, session=str(conversation.session.id))
    await store_result(other, claimed.lease, "read_history", quoted)

    assert (await other.messages())[-1].content == quoted


async def test_what_an_import_quotes_of_sessions_unknown_here_can_be_read_again(
    database: Database,
) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    quoted = "<quoted_history>\n[#4 in session 01980000-0000-7000-8000-000000000001, user, 2026-03-14 10:00] Hi\n"
    call = answer_message("", tool_calls=(ToolCall("c0", "read_history", "{}"),))
    result = NewMessage(Role.TOOL, f"{quoted}</quoted_history>", Source.API, tool_call_id="c0", name="read_history")
    await conversation.store(call, result)
    other = await open_conversation(database)
    claimed = await other.start()
    read = await recalled.read_history(other, 1, 2, run_id=claimed.run.id, session=str(conversation.session.id))
    await store_result(other, claimed.lease, "read_history", read)

    assert (await other.messages())[-1].content == read


@pytest.mark.parametrize("before", ["See ", "a\n", "a\u2028", ""])
async def test_a_message_that_imitates_a_quotation_of_no_session_can_be_read(database: Database, before: str) -> None:
    conversation, recalled = await open_conversation(database), Recalled(database)
    await conversation.say(f"{before}[#4 in session 01980000-0000-7000-8000-000000000001, user, 2026-03-14 10:00] Hi")
    claimed = await conversation.start()
    read = await recalled.read_history(conversation, 1, 1, run_id=claimed.run.id)
    part = await recalled.read_output(conversation, 1, 0, run_id=claimed.run.id)
    await store_results(conversation, claimed.lease, {"read_history": read, "read_output": part})

    assert [message.content for message in (await conversation.messages())[-2:]] == [read, part]


async def test_a_cancelled_waiting_message_is_kept_and_so_is_the_title_it_gave(database: Database) -> None:
    conversation = await open_conversation(database)
    first, _ = await conversation.submit("The first line"), await conversation.submit("The second line")

    await database.runs.request_cancel(conversation.owner_id, first.run.id)

    assert (await conversation.reload()).title == "The first line"


async def test_a_title_somebody_wrote_outlives_a_cancelled_message(database: Database) -> None:
    conversation = await open_conversation(database, title="Mine")
    queued = await conversation.submit("The first line")

    await database.runs.request_cancel(conversation.owner_id, queued.run.id)

    assert (await conversation.reload()).title == "Mine"
