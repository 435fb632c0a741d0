"""Chat completions that continue a session: what is new, what is repeated, and where a chat branches."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.asking_server import BUY, BUY_MORE, BUYS, shop
from fakes.openai_stage import NAME, OPEN_AGENT, Chat, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import OneTool
from throughline.chat_protocols.continue_chat import MOST_COMPARED, Alignment, SessionTexts, align
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected
from throughline.domain.message import ToolCall

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
QUESTION = ToolCall("q", "ask_user", '{"question": "Which town?"}')


async def history(stage: OpenAIStage, session: str) -> list[object]:
    listed = await stage.http.get(f"/v1/sessions/{session}/messages", params={"limit": 200})
    return [message["content"] for message in listed.json()["data"]]


async def named(stage: OpenAIStage, name: str = NAME) -> list[dict[str, Any]]:
    listed = await stage.http.get("/v1/sessions", params={"external_id": name})
    return list(listed.json()["data"])


def prompts(stage: OpenAIStage) -> list[list[object]]:
    return [[message.content for message in request.prompt.messages] for request in stage.model.requests]


@pytest.mark.parametrize("header", ["X-Session-Id", "X-Chat-Id", "X-OpenWebUI-Chat-Id"])
async def test_a_chat_becomes_one_session_and_only_what_is_new_is_stored(stage: OpenAIStage, header: str) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"))
    chat = Chat(stage, header)

    first = await chat.say("a")
    await chat.say("b")
    last = await chat.say("c")

    session = first.headers["x-session-id"]
    assert await history(stage, session) == ["a", "one", "b", "two", "c", "three"]
    assert (last.headers["x-session-id"], [one["id"] for one in await named(stage)]) == (session, [session])
    assert prompts(stage)[-1] == ["a", "one", "b", "two", "c"]


async def test_a_session_may_be_named_in_the_metadata_by_its_id(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    chat = Chat(stage, "X-None")
    first = await chat.say("a", store=True)
    session = first.headers["x-session-id"]
    chat.messages = []

    await chat.say("b", metadata={"session_id": session, "mine": "x"})

    assert await history(stage, session) == ["a", "one", "b", "two"]
    assert await run_count(stage, session) == 2


async def run_count(stage: OpenAIStage, session: str) -> int:
    listed = await stage.http.get(f"/v1/sessions/{session}/messages", params={"limit": 200})
    return len({message["run_id"] for message in listed.json()["data"]})


async def test_the_session_id_of_an_answer_may_be_sent_back_as_header(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    first = await Chat(stage).say("a")

    second = await Chat(stage, name=first.headers["x-session-id"]).say("b")

    assert second.headers["x-session-id"] == first.headers["x-session-id"]


async def test_a_chat_that_began_elsewhere_is_stored_as_a_whole(stage: OpenAIStage) -> None:
    stage.model.script(Say("two"))
    chat = Chat(stage)
    chat.messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}]

    answer = await chat.say("b")

    assert await history(stage, answer.headers["x-session-id"]) == ["a", "one", "b", "two"]


async def test_answers_that_the_program_has_changed_do_not_matter(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    chat = Chat(stage)
    await chat.say("a")
    chat.messages[-1] = {"role": "assistant", "content": "o"}

    answer = await chat.say("b")

    assert await history(stage, answer.headers["x-session-id"]) == ["a", "one", "b", "two"]


async def test_an_edited_message_branches_the_chat(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("new two"), Say("three"))
    chat = Chat(stage)
    old = (await chat.say("a")).headers["x-session-id"]
    await chat.say("b")
    chat.messages = chat.messages[:2]

    new = (await chat.say("b, rather")).headers["x-session-id"]
    await chat.say("c")

    assert await history(stage, old) == ["a", "one", "b", "two"]
    assert await history(stage, new) == ["a", "one", "b, rather", "new two", "c", "three"]
    (session,) = await named(stage)
    assert (session["id"], session["metadata"], session["title"]) == (new, {"branched_from": old}, "a")


async def test_an_edited_first_message_branches_a_whole_chat_and_continues_any_other(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("new one"), Say("one"), Say("two"))
    sessions = [
        (await Chat(stage, header, header).say(text)).headers["x-session-id"]
        for header in ("X-Chat-Id", "X-Session-Id")
        for text in ("a", "a, rather")
    ]

    assert sessions[0] != sessions[1]
    assert sessions[2] == sessions[3]
    assert await history(stage, sessions[1]) == ["a, rather", "new one"]
    assert await history(stage, sessions[2]) == ["a", "one", "a, rather", "two"]


async def test_a_regenerated_answer_branches_the_chat(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"), Say("other two"))
    chat = Chat(stage)
    old = (await chat.say("a")).headers["x-session-id"]
    await chat.say("b")
    chat.messages.pop()

    new = (await chat.post()).headers["x-session-id"]

    assert await history(stage, old) == ["a", "one", "b", "two"]
    assert await history(stage, new) == ["a", "one", "b", "other two"]


async def test_a_session_named_by_its_id_does_not_branch(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    session = (await Chat(stage).say("a")).headers["x-session-id"]
    chat = Chat(stage, "X-None")
    chat.messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}]
    await chat.say("b", metadata={"session_id": session})
    chat.messages[-2]["content"] = "b, rather"

    refused = await chat.post({"metadata": {"session_id": session}, "messages": [*chat.messages, USER]})

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conversation_branched")
    assert await history(stage, session) == ["a", "one", "b", "two"]


USER = {"role": "user", "content": "c"}


async def test_a_client_that_tries_again_gets_the_stored_answer(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    chat = Chat(stage)
    await chat.say("a")
    first = await chat.say("b")
    chat.messages.pop()

    again = await chat.post(headers={"x-stainless-retry-count": "1"})
    streamed = await chat.post({"stream": True}, {"x-stainless-retry-count": "2"})

    assert again.json() == first.json()
    assert '"content":"two"' in streamed.text
    assert len(await history(stage, first.headers["x-session-id"])) == 4


async def test_a_repetition_of_an_unfinished_turn_joins_it(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one"), Say("slow answer", gate=gate))
    chat = Chat(stage)
    session = (await chat.say("a")).headers["x-session-id"]
    chat.messages.append({"role": "user", "content": "b"})
    request = asyncio.create_task(chat.post())
    while len(stage.model.requests) < 2:
        await asyncio.sleep(0.01)

    body = {"model": "assistant", "messages": chat.messages, "stream": True}
    async with stage.http.stream("POST", "/v1/chat/completions", json=body, headers=chat.headers) as joined:
        gate.set()  # the answer to the repetition has begun
        second = (await joined.aread()).decode()
    first = (await request).json()

    assert f'"id":"{first["id"]}"' in second.replace('": "', '":"')
    assert "answer" in second
    assert await history(stage, session) == ["a", "one", "b", "slow answer"]


@pytest.mark.parametrize("begins", ["a new chat", "a chat that goes on", "a branch"])
async def test_many_equal_requests_with_a_key_are_stored_once(stage: OpenAIStage, begins: str) -> None:
    stage.model.script(*[Say("one")] * (begins != "a new chat"), Say("two"))
    chat = Chat(stage, "X-Chat-Id")
    if begins != "a new chat":
        await chat.say("a")
    if begins == "a branch":
        chat.messages.clear()
    chat.messages.append({"role": "user", "content": "b"})

    answers = await asyncio.gather(*[chat.post(headers={"Idempotency-Key": "k"}) for _ in range(20)])

    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    assert len({answer.text for answer in answers}) == 1
    (session,) = await named(stage)
    assert session["message_count"] == {"a new chat": 2, "a chat that goes on": 4, "a branch": 2}[begins]


async def test_another_request_with_the_same_key_is_refused(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    chat, key = Chat(stage), {"Idempotency-Key": "k"}
    chat.messages.append({"role": "user", "content": "a"})
    await chat.post(headers=key)
    chat.messages[0] = {"role": "user", "content": "b"}

    refused = await chat.post(headers=key)

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")


async def test_results_of_tools_continue_the_waiting_turn(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,), text="I look."), Say("It rains."), Say("You are welcome."))
    chat = Chat(stage)
    asked = await chat.say("Rain?", tools=[WEATHER])
    chat.messages.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})

    answered = await chat.post({"tools": [WEATHER]})
    again = await chat.post({"tools": [WEATHER]}, {"x-stainless-retry-count": "1"})
    chat.messages.append(answered.json()["choices"][0]["message"])
    await chat.say("Thanks!")

    assert asked.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert answered.json()["choices"][0]["message"]["content"] == "It rains."
    assert again.json() == answered.json()
    session = asked.headers["x-session-id"]
    assert await history(stage, session) == ["Rain?", "I look.", "rain", "It rains.", "Thanks!", "You are welcome."]


async def test_a_new_message_takes_the_place_of_a_turn_that_waits_for_a_tool(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Fine."))
    chat = Chat(stage)
    session = (await chat.say("Rain?", tools=[WEATHER])).headers["x-session-id"]

    await chat.say("Never mind.")

    assert chat.text() == "Fine."
    assert (await history(stage, session))[-2:] == ["Never mind.", "Fine."]


async def test_the_next_message_answers_a_question_of_the_model(database: Database) -> None:
    async with open_openai_stage(database, agent=replace(OPEN_AGENT, tools=("ask_user",))) as stage:
        stage.model.script(Call((QUESTION,)), Say("Graz is dry."), Say("Bye."), Say("Bye then."))
        chat = Chat(stage)
        session = (await chat.say("Rain?")).headers["x-session-id"]
        asked = chat.text()

        answered = await chat.say("Graz")
        await chat.say("Thanks")
        chat.messages.pop()
        regenerated = await chat.post()

        assert (asked, answered.headers["x-session-id"]) == ("Which town?", session)
        assert await history(stage, session) == ["Rain?", "", "Graz", "Graz is dry.", "Thanks", "Bye."]
        assert regenerated.headers["x-session-id"] != session


async def test_an_answer_that_is_sent_again_joins_the_turn(database: Database) -> None:
    async with open_openai_stage(database, agent=replace(OPEN_AGENT, tools=("ask_user",))) as stage:
        gate = asyncio.Event()
        stage.model.script(Call((QUESTION,)), Say("Graz is dry.", gate=gate))
        chat = Chat(stage)
        session = (await chat.say("Rain?")).headers["x-session-id"]
        chat.messages.append({"role": "user", "content": "Graz"})

        requests = [asyncio.create_task(chat.post()) for _ in range(2)]
        while len(stage.model.requests) < 2:
            await asyncio.sleep(0.01)
        requests.append(asyncio.create_task(chat.post()))
        await asyncio.sleep(0.1)
        gate.set()

        answers = {(await request).text for request in requests}
        assert len(answers) == 1
        assert await history(stage, session) == ["Rain?", "", "Graz", "Graz is dry."]


async def test_an_answer_says_how_to_approve_a_call(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    careful = replace(OPEN_AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
    async with open_openai_stage(database, agent=careful, tools=tool) as stage:
        stage.model.script(Call((ToolCall("c", "delete", "{}"),), text="I ask first."), Say("Done."), Say("Yes."))
        chat = Chat(stage)
        answer = await chat.say("Delete it.")
        run = answer.headers["x-run-id"]
        body = {"calls": [{"call_id": "c", "decision": "approve"}]}

        approved = await stage.http.post(f"/v1/runs/{run}/resume", json=body)
        await chat.say("Is it gone?")

        told = str(answer.json()["choices"][0]["message"]["content"])
        assert told.startswith("I ask first.\n\nThe turn waits for approval")
        assert f"POST /v1/runs/{run}/resume" in told
        assert '{"calls": [{"call_id": "c", "decision": "approve"}]}' in told
        assert approved.json()["message"]["content"] == "Done."
        assert (chat.text(), len(tool.keys)) == ("Yes.", 1)


async def test_a_failed_turn_is_tried_again_in_a_session_without_it(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Fail(ModelRejected("No.")), Say("two"))
    chat = Chat(stage)
    await chat.say("a")
    chat.messages.append({"role": "user", "content": "b"})
    failed = await chat.post()

    again = await chat.post()

    assert failed.status_code == 502
    assert await history(stage, again.headers["x-session-id"]) == ["a", "one", "b", "two"]


async def test_a_redacted_message_does_not_branch_the_chat(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    chat = Chat(stage, "X-Chat-Id")
    session = (await chat.say("a")).headers["x-session-id"]
    listed = (await stage.http.get(f"/v1/sessions/{session}/messages")).json()["data"]
    await stage.http.post(f"/v1/sessions/{session}/messages/{listed[0]['id']}/redact")

    answer = await chat.say("b")

    assert answer.headers["x-session-id"] == session


async def test_a_session_of_nobody_is_not_found(stage: OpenAIStage) -> None:
    chat = Chat(stage, "X-None")

    refused = await chat.post({"metadata": {"session_id": str(uuid4())}, "messages": [USER]})

    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")


TEXTS = st.sampled_from(["yes", "no", "go on", ""])
CHATS = st.lists(TEXTS, min_size=1, max_size=2 * MOST_COMPARED)


def kept(texts: list[str]) -> SessionTexts:
    """Return what is read of a session in which the user said `texts`."""
    return SessionTexts(tuple(texts[-MOST_COMPARED:]), len(texts) < MOST_COMPARED)


@given(CHATS, TEXTS)
def test_a_further_message_continues_the_chat(chat: list[str], text: str) -> None:
    assert align([*chat, text], kept(chat), has_whole_chat=True) is Alignment.CONTINUES


@given(st.lists(TEXTS, min_size=1, max_size=MOST_COMPARED - 1))
def test_the_same_chat_once_more_repeats_its_newest_message(chat: list[str]) -> None:
    assert align(chat, kept(chat), has_whole_chat=True) is Alignment.REPEATS


@given(CHATS, st.data())
def test_a_changed_earlier_message_branches_the_chat(chat: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(max(len(chat) - MOST_COMPARED, 0), len(chat) - 1))
    changed = [*chat[:place], "something else", *chat[place + 1 :], "next"]

    assert align(changed, kept(chat), has_whole_chat=True) is Alignment.BRANCHES


@given(CHATS, TEXTS, st.integers(1, 2 * MOST_COMPARED))
def test_a_program_may_leave_out_the_oldest_messages(chat: list[str], text: str, left: int) -> None:
    sent = [*chat[-left:], text]

    assert align(sent, kept(chat), has_whole_chat=True) in {Alignment.CONTINUES, Alignment.REPEATS}


@given(CHATS, TEXTS)
def test_a_message_alone_never_branches_unless_it_is_the_whole_chat(chat: list[str], text: str) -> None:
    found = align([text], kept(chat), has_whole_chat=False)

    assert found is (Alignment.MAY_REPEAT if text == chat[-1] else Alignment.CONTINUES)


@given(CHATS, TEXTS, st.data())
def test_a_redacted_message_fits_any(chat: list[str], text: str, data: st.DataObject) -> None:
    said = kept(chat)
    place = data.draw(st.integers(0, len(said.texts) - 1))
    redacted = SessionTexts((*said.texts[:place], None, *said.texts[place + 1 :]), said.is_all)

    assert align([*chat, text], redacted, has_whole_chat=True) is Alignment.CONTINUES


@given(CHATS)
def test_a_session_without_messages_takes_the_whole_chat(chat: list[str]) -> None:
    assert align(chat, SessionTexts((), is_all=True), has_whole_chat=False) is Alignment.EMPTY


async def test_the_next_message_answers_a_question_of_a_tools_server(database: Database) -> None:
    async with open_openai_stage(database, agent=BUYS, tool_servers=shop()) as stage:
        stage.model.script(Call((BUY,)), Say("They are yours."), Say("Bye."))
        chat = Chat(stage)
        session = (await chat.say("Shoes!")).headers["x-session-id"]
        asked = chat.text()
        await chat.say("huge")
        again = chat.text()
        bought = await chat.say("42")
        await chat.say("Thanks")

        assert asked.startswith("The server shop asks, for its tool shop__buy. ")
        assert "The answer does not fit the question: 'size' must be of the type integer." in again
        assert bought.headers["x-session-id"] == session
        assert await history(stage, session) == ["Shoes!", "", "bought", "They are yours.", "Thanks", "Bye."]


async def test_a_message_answers_one_question_of_servers_alone(database: Database) -> None:
    async with open_openai_stage(database, agent=BUYS, tool_servers=shop()) as stage:
        stage.model.script(Call((BUY, BUY_MORE)), Say("Both are yours."))
        chat = Chat(stage)
        session = (await chat.say("Shoes!")).headers["x-session-id"]
        asked = chat.text()
        await chat.say("42")
        waiting = chat.text()
        await chat.say("43")

        listed = (await stage.http.get(f"/v1/sessions/{session}/messages")).json()["data"]
        results = [message for message in listed if message["role"] == "tool"]
        assert asked.count("Which size?") == waiting.count("Which size?") == 1
        assert chat.text() == "Both are yours."
        assert sorted(result["metadata"]["questions"][0]["answer"] for result in results) == ["42", "43"]


@pytest.mark.parametrize("waits", [20_000_000, -1, 2.5, "abc"])
async def test_imported_numbers_of_questions_are_not_trusted(stage: OpenAIStage, waits: object) -> None:
    stage.model.script(Say("Bye."))
    call = {"id": "c", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "draw"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "drawn", "tool_call_id": "c", "metadata": {"waits": waits}},
    ]
    made = await stage.http.post("/v1/sessions/import", json={"agent": "assistant", "messages": said})
    chat = Chat(stage, name=made.json()["id"])

    assert (await chat.say("draw")).status_code == 200
