"""Redaction and erasure reach the copies that the service makes of messages, and name those that a user made."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from openai.types.responses import Response

from db.test_redacted_quotations import tables_with
from fakes.chat_program import Chat
from fakes.conversations import CLAIMER
from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from openai_interface.test_responses import create
from throughline.db.database import Database
from throughline.db.retention import BEFORE_ALL
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import NotFound
from throughline.domain.message import REDACTED_TEXT, Role, Source, ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import CopiedMessages, Opening, RunInput, Submission
from throughline.domain.session import NewSession

SECRET = "tangelo42"  # the word that has to go
TEXT = f"I have the code\nof every oven: {SECRET}."


@dataclass
class Scene:
    """The served application, and the address of its database."""

    stage: OpenAIStage
    url: str

    async def sessions(self) -> list[str]:
        """Return the ids of all sessions with messages, the oldest first."""
        return [
            str(one)
            for (one,) in await run_sql(
                self.url, "select id from sessions where message_count > 0 order by created_at, id"
            )
        ]

    async def redact(self, session: str, position: int = 1) -> list[dict[str, object]]:
        """Redact a message over REST; return the copies that the answer names."""
        path = f"/v1/sessions/{session}/messages"
        listed = (await self.stage.http.get(path, params={"limit": 200})).json()["data"]
        answer = await self.stage.http.post(f"{path}/{listed[position - 1]['id']}/redact")
        assert answer.status_code == 200, answer.text
        assert answer.json()["content"] == REDACTED_TEXT
        return list(answer.json()["copies"])

    async def left(self) -> list[str]:
        """Return the tables that still hold the word."""
        return await tables_with(self.url, SECRET)

    async def respond(self, text: str, previous: Response | None = None, *, store: bool = True) -> Response:
        named = {} if previous is None else {"previous_response_id": previous.id}
        return await create(self.stage, model="assistant", input=text, store=store, **named)


@pytest.fixture
async def scene(database: Database, database_url: str) -> AsyncIterator[Scene]:
    async with open_openai_stage(database) as stage:
        stage.model.script(*(Say(f"answer {number}") for number in range(9)))
        yield Scene(stage, database_url)


async def continue_twice(scene: Scene) -> None:
    first = await scene.respond(TEXT)
    await scene.respond("b", first)
    await scene.respond("c", first)


async def continue_without_storing(scene: Scene) -> None:
    await scene.respond("b", await scene.respond(TEXT), store=False)


async def copy_a_copy(scene: Scene) -> None:
    first = await scene.respond(TEXT)
    await scene.respond("b", first)
    copied = await scene.respond("c", first)
    await scene.respond("d", copied)
    await scene.respond("e", copied)


async def compact(scene: Scene) -> None:
    first = await scene.respond(TEXT)
    answer = await scene.stage.http.post(
        "/v1/responses/compact", json={"model": "assistant", "previous_response_id": first.id}
    )
    assert answer.status_code == 200, answer.text


async def edit_a_chat(scene: Scene) -> None:
    chat = Chat(scene.stage)
    await chat.say(TEXT)
    await chat.say("b")
    del chat.messages[2:]
    chat.messages[0] = {"role": "user", "content": TEXT.replace("\n", "\n\n")}
    await chat.say("edited")


async def edit_to_a_later_text(scene: Scene) -> None:
    chat = Chat(scene.stage)
    for text in ("Plan?", TEXT, "continue"):
        await chat.say(text)
    chat.messages[0] = {"role": "user", "content": "continue"}
    await chat.say("and now?")


async def edit_the_first_of_a_named_chat(scene: Scene) -> None:
    chat = Chat(scene.stage, "X-OpenWebUI-Chat-Id")
    await chat.say(f"The code {SECRET}")
    await chat.say("b")
    chat.messages[0] = {"role": "user", "content": "The code?"}
    await chat.say("c")


async def edit_the_first_message(scene: Scene) -> None:
    chat = Chat(scene.stage, "X-OpenWebUI-Chat-Id")
    await chat.say(f"The code {SECRET}")
    chat.messages = []
    await chat.say("The code?")


async def regenerate_an_answer(scene: Scene) -> None:
    chat = Chat(scene.stage)
    await chat.say("a")
    await chat.say(TEXT)
    del chat.messages[2:]
    await chat.say(TEXT)


async def repeat_steps_in_a_branch(scene: Scene) -> None:
    chat = Chat(scene.stage)

    def reply(request: ModelRequest) -> Say | Call:
        is_asked = request.tools[-1].name == "find" and request.prompt.messages[-1].role is Role.USER
        return Call((ToolCall("c1", "find", "{}"),)) if is_asked else Say("found")

    scene.stage.model.by_request = reply
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    await chat.say("a")
    await chat.say(TEXT, tools=tools)
    chat.messages.append({"role": "tool", "tool_call_id": "c1", "content": SECRET})
    body = (await chat.post({"tools": tools})).json()
    assert body["choices"][0]["message"]["content"], body
    chat.messages[2] = {"role": "user", "content": "Find the code."}
    assert (await chat.post({"tools": tools})).status_code == 200


COPYING = [
    continue_twice,
    continue_without_storing,
    copy_a_copy,
    compact,
    edit_a_chat,
    edit_the_first_message,
    edit_the_first_of_a_named_chat,
]


@pytest.mark.parametrize("copying", COPYING)
async def test_redaction_reaches_what_the_service_has_copied(
    scene: Scene, copying: Callable[[Scene], Awaitable[None]]
) -> None:
    await copying(scene)
    sessions = await scene.sessions()
    assert len(sessions) > 1
    assert "public.messages" in await scene.left()

    assert await scene.redact(sessions[0]) == []

    assert await scene.left() == []


@pytest.mark.parametrize("copying", COPYING)
async def test_erasure_reaches_what_the_service_has_copied(
    scene: Scene, copying: Callable[[Scene], Awaitable[None]]
) -> None:
    await copying(scene)
    first, *others = await scene.sessions()

    assert (await scene.stage.http.delete(f"/v1/sessions/{first}")).status_code == 204

    assert await scene.left() == []
    assert await scene.sessions() == others


async def test_redaction_reaches_what_a_branch_repeats_in_another_order(scene: Scene) -> None:
    await edit_to_a_later_text(scene)
    first, _ = await scene.sessions()

    await scene.redact(first, 3)

    assert await scene.left() == []


async def test_redaction_reaches_a_result_that_a_branch_repeats(scene: Scene) -> None:
    await repeat_steps_in_a_branch(scene)
    first, _ = await scene.sessions()

    await scene.redact(first, 5)
    await scene.redact(first, 3)

    assert await scene.left() == []


async def test_redaction_reaches_a_message_that_was_answered_anew(scene: Scene) -> None:
    await regenerate_an_answer(scene)
    first, _ = await scene.sessions()

    await scene.redact(first, 3)

    assert await scene.left() == []


async def test_a_copy_keeps_what_was_said_after_it_and_names_its_original(scene: Scene) -> None:
    await continue_twice(scene)
    first, copy = await scene.sessions()

    await scene.redact(first)

    history = (await scene.stage.http.get(f"/v1/sessions/{copy}/messages")).json()["data"]
    assert [one["content"] for one in history] == [REDACTED_TEXT, "answer 0", "c", "answer 2"]
    session = (await scene.stage.http.get(f"/v1/sessions/{copy}")).json()
    assert session["metadata"] == {"branched_from": first}


async def test_a_copy_of_a_copy_is_reached_when_the_session_between_is_gone(scene: Scene) -> None:
    await copy_a_copy(scene)
    first, between, last = await scene.sessions()
    await run_sql(scene.url, "update sessions set expires_at = now() - interval '1 hour' where id = $1", between)
    old = await scene.stage.database.expired_sessions.list_old(0, BEFORE_ALL)
    assert [await scene.stage.database.expired_sessions.erase(one, 0) for one in old] == [True]
    assert await scene.sessions() == [first, last]
    assert len(await run_sql(scene.url, "select from messages where content = $1", TEXT)) == 2

    await scene.redact(first)

    assert await scene.left() == []


async def test_redacting_a_copy_leaves_its_original(scene: Scene) -> None:
    await continue_twice(scene)
    first, copy = await scene.sessions()

    await scene.redact(copy)

    history = (await scene.stage.http.get(f"/v1/sessions/{first}/messages")).json()["data"]
    assert history[0]["content"] == TEXT


async def import_export(scene: Scene, session: str) -> str:
    export = (await scene.stage.http.get(f"/v1/sessions/{session}/export")).content
    headers = {"Content-Type": "application/x-ndjson"}
    made = await scene.stage.http.post("/v1/sessions/import", content=export, headers=headers)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def test_redaction_names_the_copies_in_imports_until_they_are_redacted(scene: Scene) -> None:
    await scene.respond(TEXT)
    (first,) = await scene.sessions()
    imported = await import_export(scene, first)
    again = await import_export(scene, imported)
    named = [{"session_id": one, "position": 1} for one in (imported, again)]

    assert await scene.redact(first) == named
    assert await scene.redact(imported) == named[1:]
    assert await scene.redact(again) == []

    assert await scene.left() == []


async def test_erasure_names_imports_in_both_interfaces(scene: Scene) -> None:
    await scene.respond(TEXT)
    (first,) = await scene.sessions()
    imported = await import_export(scene, first)
    again = await import_export(scene, imported)

    deleted = await scene.stage.http.delete(f"/v1/sessions/{first}")
    by_openai = await scene.stage.http.delete(f"/v1/conversations/conv_{imported.replace('-', '')}")

    assert deleted.status_code == 200
    copies = [{"session_id": one, "message_count": 2} for one in (imported, again)]
    assert deleted.json() == {"id": first, "copies": copies}
    assert by_openai.json()["copies"] == [again]


async def test_an_import_is_linked_to_no_session_of_another_user(scene: Scene, database_url: str) -> None:
    await scene.respond(TEXT)
    (first,) = await scene.sessions()
    stranger = await scene.stage.database.users.get_or_create("mallory")
    await run_sql(database_url, "update sessions set owner_id = $1", stranger)
    line = f'{{"type": "session", "id": "{first}", "agent": "assistant"}}\n'
    said = '{"type": "message", "position": 1, "role": "user", "content": "mine"}\n'
    headers = {"Content-Type": "application/x-ndjson"}

    made = await scene.stage.http.post("/v1/sessions/import", content=line + said, headers=headers)

    assert made.status_code == 201
    assert await run_sql(database_url, "select from message_copies") == []


@pytest.mark.parametrize("original", ["erased", "another user's"])
async def test_nothing_is_stored_if_the_messages_to_copy_are_not_the_owners(scene: Scene, original: str) -> None:
    await scene.respond(TEXT)
    (first,) = await scene.sessions()
    database = scene.stage.database
    owner = await database.users.get_or_create("local")
    if original == "erased":
        await scene.stage.http.delete(f"/v1/sessions/{first}")
    else:
        owner = await database.users.get_or_create("mallory")
    before = await scene.sessions()
    new = NewSession(owner, "assistant", "", Source.API, {}, id=SessionId(new_id()))
    opening = Opening(new, copied=CopiedMessages(SessionId(UUID(first)), 2))

    with pytest.raises(NotFound):
        await database.runs.submit(
            Submission(owner, new.id or pytest.fail("no id"), RunInput("b"), Source.API, opening=opening), CLAIMER
        )

    assert await scene.sessions() == before
