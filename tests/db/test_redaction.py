"""Redaction: the text is nowhere afterwards, whatever was made from it, and the conversation goes on without it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from fakes.conversations import (
    BEHIND_ALL,
    CLAIMER,
    Conversation,
    adoption_of,
    answer_message,
    open_conversation,
    segment_of,
    user_message,
)
from fakes.event_log import MESSAGE_ID
from fakes.raw_sql import run_sql, tables_with
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.quotations import LOOK_AGAIN
from throughline.db.sessions.redaction import MARKER, Redaction
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import NotFound, SessionBusy, SummaryConflict
from throughline.domain.events import MessageDelta, NewEvent, ReasoningDelta
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.reasoning import Reasoning
from throughline.domain.recall import HistoryQuery
from throughline.domain.run import CopiedMessages, Lease, Opening, Outcome, RunError, RunInput, RunStatus, Submission
from throughline.domain.session import NewSession
from throughline.domain.summary import FactKind, KeptFact
from throughline.domain.tool import ToolContext
from throughline.tools.recall import make_recall_tools

SECRET = "tangelo42"  # the word that has to go


@dataclass
class Scene:
    """A conversation with a secret in its fourth message, and everything made from it."""

    conversation: Conversation
    url: str
    messages: list[Message]

    @property
    def secret(self) -> Message:
        return self.messages[3]

    async def redact(self, message: Message | None = None) -> Message:
        conversation, chosen = self.conversation, message or self.secret
        wanted = Redaction(conversation.owner_id, conversation.session.id, chosen.id, actor="support")
        return (await conversation.database.messages.redact(wanted)).message

    async def tables_with(self, word: str) -> list[str]:
        return await tables_with(self.url, word)


@pytest.fixture
async def scene(database: Database, database_url: str) -> Scene:
    conversation = await open_conversation(database, title=f"The code is {SECRET}")
    text = f"The code is {SECRET}, keep it."
    stored = await conversation.say("one", "two", "three")
    claimed = await conversation.start(text)
    stored.append(await database.messages.append_message(claimed.lease, "user", user_message(text, tokens=9)))
    event = NewEvent(1, MessageDelta(MESSAGE_ID, f"You said {SECRET}"))
    await database.events.append_events(claimed.lease, [event])
    await conversation.end(claimed.lease)
    stored += await conversation.say("five", "six")
    scene = Scene(conversation, database_url, stored)
    await summarise(scene)
    await database.history.index_session(conversation.session.id)
    await conversation.pin(scene.secret)
    return scene


async def summarise(scene: Scene) -> None:
    """Adopt a summary of 1..2, then one of 1..5 with the secret in text and kept facts; prepare a further one."""
    conversation, messages = scene.conversation, scene.messages
    await conversation.adopt(messages[1], "They counted.")
    first = await conversation.segment(messages[1], "They counted.")
    second = await conversation.segment(messages[4], f"The code: {SECRET}.", first=3)
    kept = (KeptFact(FactKind.IDENTIFIER, SECRET, 4),)
    summaries = conversation.database.summaries
    await summaries.adopt_summary(adoption_of(1, messages[4], first, second, kept_facts=kept))
    third = await conversation.segment(messages[5], "Six.", first=6)
    await summaries.prepare_summary(adoption_of(2, messages[5], first, second, third, kept_facts=kept))


async def test_the_text_is_in_no_row_of_any_table_afterwards(scene: Scene) -> None:
    before = await scene.tables_with(SECRET)

    redacted = await scene.redact()

    assert set(before) >= {
        "public.messages",
        "public.runs",
        "public.run_events",
        "public.sessions",
        "public.summaries",
        "public.summary_versions",
        "public.search_terms",
    }
    assert await scene.tables_with(SECRET) == []
    assert (redacted.content, redacted.position, redacted.pinned) == (MARKER, 4, True)
    assert redacted.metadata == {"redacted": True}


@pytest.mark.parametrize(
    ("role", "outside", "kept"),
    [
        (Role.TOOL, "answer", {"redacted": True, "outside": "answer"}),
        (Role.TOOL, SECRET, {"redacted": True}),
        (Role.USER, "answer", {"redacted": True}),
    ],
)
async def test_of_metadata_only_what_a_call_has_waited_for_stays(
    scene: Scene, role: Role, outside: str, kept: dict[str, object]
) -> None:
    conversation = scene.conversation
    call_id = "c" if role is Role.TOOL else None
    new = NewMessage(role, SECRET, Source.API, tool_call_id=call_id, metadata={"outside": outside, "given_by": SECRET})
    ids = (conversation.owner_id, conversation.session.id)
    (stored,) = await conversation.database.sessions.append(*ids, [new])

    assert (await scene.redact(stored)).metadata == kept


async def test_the_summary_goes_back_to_what_does_not_reach_the_message(scene: Scene) -> None:
    await scene.redact()

    session = await scene.conversation.reload()
    assert (session.conversation_summary, session.summary_through_position) == ("They counted.", 2)
    assert session.summary_version == 3
    loaded = await scene.conversation.database.messages.load_context(session.id, None, 1000)
    assert [message.position for message in loaded.history] == [3, 4, 5, 6]
    assert loaded.prepared is None


async def test_without_an_earlier_version_nothing_is_summarised(scene: Scene) -> None:
    await scene.redact(scene.messages[0])

    session = await scene.conversation.reload()
    assert (session.conversation_summary, session.summary_through_position, session.summary_through_id) == ("", 0, None)


async def test_a_segment_that_was_being_written_meanwhile_is_not_stored(scene: Scene) -> None:
    await scene.redact()

    with pytest.raises(SummaryConflict, match="redacted"):
        await scene.conversation.database.summaries.save_segment(
            scene.conversation.session.id, segment_of(scene.messages[4], f"late {SECRET}", first=3)
        )


async def test_what_recall_tools_quoted_of_it_goes_too_also_in_other_sessions(scene: Scene) -> None:
    database, here = scene.conversation.database, scene.conversation
    other = await open_conversation(database)
    there = f"[#4 in session {here.session.id}, user, 2026] {SECRET}"
    for conversation, text in ((here, f"[#4, user, 2026] {SECRET}"), (other, there)):
        claimed = await conversation.start()
        call = ToolCall("c1", "search_history", json.dumps({"query": "code"}))
        result = NewMessage(Role.TOOL, text, Source.API, tool_call_id="c1", name="search_history")
        await database.messages.append_message(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
        await database.messages.append_message(claimed.lease, "tool:0:0", result)
        await conversation.end(claimed.lease)

    await scene.redact()

    assert await scene.tables_with(SECRET) == []
    assert [message.content for message in await other.messages()] == ["", MARKER]


async def test_a_search_finds_it_no_more_and_everything_else_still(scene: Scene) -> None:
    await scene.redact()

    history, who = scene.conversation.database.history, scene.conversation.owner_id
    session_id = scene.conversation.session.id
    assert (await history.search(who, session_id, HistoryQuery(SECRET))).hits == ()
    assert (await history.search(who, session_id, HistoryQuery("five"))).hits[0].message.position == 5


async def test_redacting_twice_is_redacting_once_and_is_recorded(scene: Scene) -> None:
    first = await scene.redact()

    assert await scene.redact() == first
    recorded = await run_sql(scene.url, "select message_id, position, actor from message_redactions")
    assert recorded == [(scene.secret.id, 4, "support")]


async def test_a_session_with_a_turn_under_way_is_refused(scene: Scene) -> None:
    claimed = await scene.conversation.start()

    with pytest.raises(SessionBusy, match=str(claimed.run.id)):
        await scene.redact()


async def test_somebody_else_cannot_redact(scene: Scene) -> None:
    stranger = await scene.conversation.database.users.get_or_create("mallory")
    wanted = Redaction(stranger, scene.conversation.session.id, scene.secret.id)

    with pytest.raises(NotFound):
        await scene.conversation.database.messages.redact(wanted)
    assert "public.messages" in await scene.tables_with(SECRET)


async def test_calls_keep_their_results_and_lose_their_arguments(scene: Scene) -> None:
    claimed = await scene.conversation.start()
    call = ToolCall("c1", "grep", json.dumps({"q": SECRET}))
    append = scene.conversation.database.messages.append_message
    asked = await append(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
    run = await scene.conversation.end(claimed.lease)

    redacted = await scene.redact(asked)

    assert run.status is RunStatus.SUCCEEDED
    assert redacted.tool_calls == (ToolCall("c1", "grep", "{}"),)


async def test_a_page_of_the_history_shows_the_marker(scene: Scene) -> None:
    await scene.redact()

    page = await scene.conversation.database.messages.list_messages(
        scene.conversation.owner_id, scene.conversation.session.id, MessageQuery()
    )
    assert [message.content for message in page.items] == ["one", "two", "three", MARKER, "five", "six"]


async def test_what_providers_said_in_the_session_goes_with_a_message(scene: Scene) -> None:
    conversation = scene.conversation
    claimed = await conversation.start()
    error = RunError("model_invalid_request", "Refused.", f"{SECRET} is odd")
    failed = await conversation.database.runs.finish(
        claimed.lease, Outcome(RunStatus.FAILED, error=error), (), BEHIND_ALL
    )

    await scene.redact()

    run = await conversation.database.runs.get_run(conversation.owner_id, failed.id)
    assert failed.error == error
    assert run.error == RunError(error.type, error.detail)
    assert await scene.tables_with(SECRET) == []


async def test_everything_made_from_a_copy_goes_with_the_original(database: Database, database_url: str) -> None:
    original = await open_conversation(database)
    secret = (await original.say("one", "two", "three", f"The code is {SECRET}, keep it."))[3]
    new = NewSession(original.owner_id, "assistant", f"The code is {SECRET}", Source.API, {}, id=SessionId(new_id()))
    opening = Opening(new, copied=CopiedMessages(original.session.id, 4))
    asked = Submission(original.owner_id, new.id or pytest.fail("no id"), RunInput("five"), Source.API, opening=opening)
    claimed = (await database.runs.submit(asked, CLAIMER)).claimed or pytest.fail("not claimed")
    copy = replace(original, session=await database.sessions.get(original.owner_id, claimed.run.session_id))
    thought = replace(answer_message("five"), reasoning=Reasoning(f"They said {SECRET}."))
    await database.messages.append_message(claimed.lease, "user", user_message("five"))
    await database.messages.append_message(claimed.lease, "assistant:0", thought)
    event = NewEvent(1, ReasoningDelta(MESSAGE_ID, f"They said {SECRET}."))
    await database.events.append_events(claimed.lease, [event])
    await copy.end(claimed.lease)
    await copy.say("six")
    scene = Scene(copy, database_url, list(await copy.messages()))
    await summarise(scene)
    await database.history.index_session(copy.session.id)
    before = await scene.tables_with(SECRET)

    redacted = await database.messages.redact(Redaction(original.owner_id, original.session.id, secret.id))

    assert set(before) >= {
        "public.messages",
        "public.message_reasoning",
        "public.run_events",
        "public.sessions",
        "public.summaries",
        "public.summary_versions",
        "public.search_terms",
    }
    assert await scene.tables_with(SECRET) == []
    assert redacted.session_ids == {original.session.id, copy.session.id}
    assert (await copy.reload()).summary_through_position == 2


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
