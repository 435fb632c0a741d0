"""Redaction and erasure reach the copies that the service makes of messages, and name those that a user made."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from openai.types.responses import Response

from fakes.conversations import CLAIMER
from fakes.openai_stage import Chat, OpenAIStage, open_openai_stage
from fakes.raw_sql import run_sql, tables_with
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
from throughline.openai.read_items import MAX_REFERENCES

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


async def test_redaction_reaches_a_message_that_was_answered_again(scene: Scene) -> None:
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


TURNS = 5
BRIEF = {"role": "system", "content": "Be brief."}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


async def respond(stage: OpenAIStage, given: list[Any], **named: object) -> dict[str, Any]:
    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": given, **named})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def items_of(stage: OpenAIStage, response: dict[str, Any]) -> list[str]:
    """Return the texts of the conversation up to a response, oldest first."""
    path = f"/v1/responses/{response['id']}/input_items"
    listed = (await stage.http.get(path, params={"order": "asc", "limit": 100})).json()["data"]
    return [item["content"][0]["text"] for item in (*listed, *response["output"])]


@pytest.mark.parametrize("is_whole", [False, True], ids=["new messages", "whole chats"])
@pytest.mark.parametrize("way", ["conversation", "previous_response_id"])
async def test_turns_are_stored_once_however_they_are_continued(stage: OpenAIStage, way: str, is_whole: bool) -> None:  # noqa: FBT001  # as pytest gives it
    stage.model.script(*(Say(f"a{number}") for number in range(TURNS)))
    conversation = (await stage.http.post("/v1/conversations", json={})).json()["id"]
    named = {"conversation": conversation} if way == "conversation" else {}
    chat: list[Any] = []
    response: dict[str, Any] = {}
    for number in range(TURNS):
        question = {"role": "user", "content": f"q{number}"}
        response = await respond(stage, [BRIEF, *(chat if is_whole else []), question], **named)
        chat += [question, *response["output"]]
        named = named if way == "conversation" else {way: response["id"]}

    expected = [f"{sort}{number}" for number in range(TURNS) for sort in "qa"]
    assert await items_of(stage, response) == expected
    assert [message.content for message in stage.model.requests[-1].prompt.messages] == expected[:-1]


async def test_a_whole_chat_behind_an_earlier_response_is_stored_once(stage: OpenAIStage) -> None:
    stage.model.script(Say("a0"), Say("a1"), Say("b1"))
    first = await respond(stage, [{"role": "user", "content": "q0"}])
    await respond(stage, [{"role": "user", "content": "q1"}], previous_response_id=first["id"])

    chat = [{"role": "user", "content": "q0"}, *first["output"], {"role": "user", "content": "p1"}]
    other = await respond(stage, chat, previous_response_id=first["id"])

    assert await items_of(stage, other) == ["q0", "a0", "p1", "b1"]


async def test_history_that_the_conversation_does_not_have_is_stored(stage: OpenAIStage) -> None:
    stage.model.script(Say("a0"), Say("a1"))
    first = await respond(stage, [{"role": "user", "content": "q0"}])

    brought = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a0"}]
    second = await respond(stage, [*brought, {"role": "user", "content": "q1"}], previous_response_id=first["id"])

    assert await items_of(stage, second) == ["q0", "a0", "x", "a0", "q1", "a1"]


async def test_own_items_may_be_sent_twice_in_one_request(stage: OpenAIStage) -> None:
    stage.model.script(Call((ToolCall("call_1", "weather", "{}"),)), Say("Still rain."))
    question = {"role": "user", "content": "Rain?"}
    asked = await stage.http.post("/v1/responses", json={"model": "assistant", "input": [question], "tools": [WEATHER]})
    items = [
        question,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        *asked.json()["output"],
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It rains.", "annotations": []}],
        },
    ]

    answered = await respond(stage, [*items, *items, {"role": "user", "content": "And now?"}])

    assert answered["output"][0]["content"][0]["text"] == "Still rain."
    sent = [message.content for message in stage.model.requests[-1].prompt.messages if message.role == "user"]
    assert sent == ["Rain?", "Rain?", "And now?"]


def reference(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]}


async def test_items_are_named_by_their_ids(stage: OpenAIStage) -> None:
    called = ToolCall("call_1", "weather", "{}")
    stage.model.script(Call((called,), text="I look."), Say("It rains."), Say("You are welcome."))
    question = {"role": "user", "content": "Rain?"}
    text, call = (await respond(stage, [question], tools=[WEATHER]))["output"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}

    (answer,) = (await respond(stage, [question, reference(text), call, result], tools=[WEATHER]))["output"]
    thanks = {"role": "user", "content": "Thanks."}
    chat = [question, reference(text), reference(call), reference(call), result, reference(answer), thanks]
    await respond(stage, chat, tools=[WEATHER])

    said = [(message.content, message.tool_calls) for message in stage.model.requests[-1].prompt.messages]
    assert said == [("Rain?", ()), ("I look.", (called,)), ("rain", ()), ("It rains.", ()), ("Thanks.", ())]


@pytest.mark.parametrize("item", ["rs_1", "msg_" + 32 * "0"])
async def test_a_named_item_that_is_missing_is_refused(stage: OpenAIStage, item: str) -> None:
    chat = [{"type": "item_reference", "id": item}, {"role": "user", "content": "hi"}]

    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": chat})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert item in answer.json()["error"]["message"]


async def test_too_many_named_items_are_refused(stage: OpenAIStage) -> None:
    chat = [{"type": "item_reference", "id": f"msg_{number:032x}"} for number in range(MAX_REFERENCES + 1)]

    answer = await stage.http.post("/v1/responses", json={"model": "assistant", "input": chat})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")
    assert "1,001" in answer.json()["error"]["message"]
