"""Chats of the AI SDK over HTTP with real turns: what is stored, continued, branched, resumed and stopped."""

import asyncio
from copy import deepcopy
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fakes.ai_sdk_client import Answer, UIChat, read_answer, read_chunks, said
from fakes.ai_sdk_stage import ChatStage, open_chat_stage
from fakes.api_stage import ApiStage
from fakes.asking_server import BUY, BUYS, shop
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import AGENT, OneTool
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage

WEATHER = {"weather": {"description": "Tell.", "parameters": {"type": "object", "properties": {}}}}
ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')
ADDS = ToolCall("sum", "calculator", '{"expression": "2 + 2"}')
QUESTION = ToolCall("q", "ask_user", '{"question": "Which town?"}')
DELETES = ToolCall("d", "delete", '{"file": "a.txt"}')
CAREFUL = replace(AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))
IMAGE = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="}


async def sessions(stage: ChatStage, name: str | None = None) -> list[dict[str, Any]]:
    listed = await stage.http.get("/v1/sessions", params={} if name is None else {"external_id": name})
    return list(listed.json()["data"])


async def contents(stage: ChatStage, name: str = "chat-1") -> list[object]:
    (session,) = await sessions(stage, name)
    listed = await stage.http.get(f"/v1/sessions/{session['id']}/messages", params={"limit": 200})
    return [message["content"] for message in listed.json()["data"]]


def prompts(stage: ChatStage) -> list[list[object]]:
    return [[message.content for message in request.prompt.messages] for request in stage.model.requests]


@pytest.mark.parametrize("sends_newest", [False, True])
async def test_a_chat_becomes_one_session_with_only_what_is_new(stage: ChatStage, *, sends_newest: bool) -> None:
    stage.model.script(Say("one", usage=Usage(3, 2), thinks="Hm."), Say("two"))
    chat = stage.chat(sends_newest=sends_newest)

    first = await chat.say("a")
    second = await chat.say("b")

    assert await contents(stage) == ["a", "one", "b", "two"]
    assert prompts(stage)[-1] == ["a", "one", "b"]
    assert (first.finish_reason, first.message["metadata"]["usage"]["totalTokens"]) == ("stop", 5)
    assert [part["type"] for part in first.parts] == ["step-start", "reasoning", "text", "data-context"]
    assert first.parts[-1]["data"]["agent"] == "assistant"
    assert [one["id"] for one in await chat.stored()] == ["u1", first.message["id"], "u2", second.message["id"]]


async def test_tools_of_the_service_are_dynamic_and_have_their_output(stage: ChatStage) -> None:
    stage.model.script(Call((ADDS,), text="Wait.", is_streamed=True), Say("Four."))
    chat = stage.chat()

    answer = await chat.say("2 + 2?")

    assert said(answer.message) == ["Wait.", ("calculator", "output-available", "4"), "Four."]
    assert answer.call("sum")["type"] == "dynamic-tool"
    assert answer.call("sum")["input"] == {"expression": "2 + 2"}
    assert said((await chat.stored())[-1]) == said(answer.message)


async def test_a_tool_of_the_client_waits_for_its_output(stage: ChatStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."), Say("Bye."))
    chat = stage.chat()
    chat.body = {"tools": WEATHER}

    asked = await chat.say("weather?")
    waiting = await chat.stored()
    run_id = asked.message["id"]
    answered = await chat.give("call_1", {"sky": "clear"})
    await chat.say("bye")

    assert asked.finish_reason == "tool-calls"
    assert said(waiting[-1]) == [("weather", "input-available", None)]
    assert answered.message["id"] == run_id
    assert said(answered.message) == [("weather", "output-available", {"sky": "clear"}), "Sunny."]
    assert await contents(stage) == ["weather?", "", '{"sky": "clear"}', "Sunny.", "bye", "Bye."]
    assert said((await chat.stored())[1]) == said(answered.message)


async def test_a_failed_tool_of_the_client_is_an_error_for_the_model(stage: ChatStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("A pity."))
    chat = stage.chat()
    chat.body = {"tools": WEATHER}
    asked = await chat.say("weather?")

    asked.call("call_1").update(state="output-error", errorText="No network.")
    answered = await chat.answer()

    assert said(answered.message) == [("weather", "output-error", "No network."), "A pity."]
    assert said((await chat.stored())[-1]) == said(answered.message)


@pytest.mark.parametrize("sends_newest", [False, True])
@pytest.mark.parametrize("approved", [False, True])
async def test_a_call_waits_for_approval(database: Database, *, approved: bool, sends_newest: bool) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_chat_stage(database, agent=CAREFUL, tools=tool) as stage:
        stage.model.script(Call((DELETES,)), Say("Well."))
        chat = stage.chat(sends_newest=sends_newest)

        asked = await chat.say("delete it")
        before = said((await chat.stored())[-1])
        decided = await chat.decide("d", approved=approved, reason="Because.")

        state = ("output-available", "deleted") if approved else ("output-denied", None)
        assert asked.finish_reason == "tool-calls"
        assert before == [("delete", "approval-requested", None)]
        assert said(decided.message) == [("delete", *state), "Well."]
        stored = (await chat.stored())[-1]
        assert said(stored) == said(decided.message)
        assert stored["parts"][1]["approval"]["approved"] is approved
        assert len(tool.keys) == approved


async def test_several_approvals_may_come_one_after_the_other(database: Database) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_chat_stage(database, agent=CAREFUL, tools=tool) as stage:
        stage.model.script(Call((DELETES, replace(DELETES, id="e"))), Say("Both."))
        chat = stage.chat()
        await chat.say("delete them")

        first = await chat.decide("d", approved=True)
        between = said((await chat.stored())[-1])
        second = await chat.decide("e", approved=True)

    assert first.finish_reason == "tool-calls"
    assert between == [("delete", "approval-responded", None), ("delete", "approval-requested", None)]
    assert said(second.message) == [*[("delete", "output-available", "deleted")] * 2, "Both."]


@pytest.mark.parametrize("by_message", [False, True])
async def test_a_question_is_answered_by_its_output_or_by_a_message(database: Database, *, by_message: bool) -> None:
    async with open_chat_stage(database, agent=replace(AGENT, tools=("ask_user",))) as stage:
        stage.model.script(Call((QUESTION,)), Say("Graz it is."), Say("Fine."), Say("Bye."))
        chat = stage.chat()
        asked = await chat.say("plan a trip")
        run_id = asked.message["id"]

        answer = await (chat.say("Graz") if by_message else chat.give("q", "Graz"))
        stored = await chat.stored()
        await chat.say("thanks")
        chat.messages = await chat.stored()
        await chat.say("bye")

        assert answer.message["id"] == (f"{run_id}:1" if by_message else run_id)
        assert said(answer.message)[-1] == "Graz it is."
        assert await contents(stage) == ["plan a trip", "", "Graz", "Graz it is.", "thanks", "Fine.", "bye", "Bye."]
        assert said(stored[-1]) == [("ask_user", "output-available", "Graz"), "Graz it is."]
        assert len(await sessions(stage)) == 1


async def test_a_question_of_a_tools_server_is_one_of_the_agent(database: Database) -> None:
    async with open_chat_stage(database, agent=BUYS, tool_servers=shop()) as stage:
        stage.model.script(Call((BUY,)), Say("They are yours."), Say("Bye."))
        chat = stage.chat()

        asked = said((await chat.say("buy shoes")).message)
        waiting = said((await chat.stored())[-1])
        answered = await chat.give("call_1:1", "42")

        assert asked == waiting == [("shop__buy", "input-available", None), ("ask_user", "input-available", None)]
        given = [("shop__buy", "output-available", "bought"), ("ask_user", "output-available", "42")]
        assert said(answered.message) == [*given, "They are yours."]
        assert said((await chat.stored())[-1]) == said(answered.message)
        await chat.say("bye")
        assert len(await sessions(stage)) == 1


@pytest.mark.parametrize("sends_newest", [False, True])
async def test_an_edited_message_branches(stage: ChatStage, *, sends_newest: bool) -> None:
    stage.model.script(Say("one"), Say("two"), Say("three"), Say("changed"))
    chat = stage.chat(sends_newest=sends_newest)
    for text in ("a", "b", "c"):
        await chat.say(text)

    await chat.edit(2, "B")

    assert await contents(stage) == ["a", "one", "B", "changed"]
    assert [(one["title"], one["external_id"]) for one in await sessions(stage)] == [("a", "chat-1"), ("a", None)]
    assert prompts(stage)[-1] == ["a", "one", "B"]


@pytest.mark.parametrize("sends_newest", [False, True])
async def test_an_answer_is_asked_for_again_in_a_branch(stage: ChatStage, *, sends_newest: bool) -> None:
    stage.model.script(Say("one"), Say("two"), Say("again"), Say("first again"), Say("three"))
    chat = stage.chat(sends_newest=sends_newest)
    await chat.say("a")
    await chat.say("b")

    await chat.regenerate()
    newest = await contents(stage)
    await chat.regenerate(1)
    await chat.say("c")

    assert newest == ["a", "one", "b", "again"]
    assert await contents(stage) == ["a", "first again", "c", "three"]


async def test_a_changed_history_branches(stage: ChatStage) -> None:
    stage.model.script(Say("one"), Say("two"))
    chat = stage.chat()
    await chat.say("a")
    chat.messages[0]["parts"][0]["text"] = "A"

    await chat.say("b")

    assert await contents(stage) == ["A", "one", "b", "two"]


async def test_a_branch_with_an_answered_question_is_continued(database: Database) -> None:
    async with open_chat_stage(database, agent=replace(AGENT, tools=("ask_user",))) as stage:
        stage.model.script(Call((QUESTION,)), Say("Graz it is."), Say("Other."), Say("Bye."))
        chat = stage.chat()
        await chat.say("plan a trip")
        await chat.give("q", "Graz")
        chat.messages[0]["parts"][0]["text"] = "plan"

        await chat.say("change it")
        await chat.say("bye")

        assert await contents(stage) == ["plan", "", "Graz", "Graz it is.", "change it", "Other.", "bye", "Bye."]
        assert len(await sessions(stage)) == 2


async def test_a_branch_with_a_declined_question_is_continued(database: Database) -> None:
    async with open_chat_stage(database, agent=BUYS, tool_servers=shop()) as stage:
        stage.model.script(Call((BUY,)), Say("A pity."), Say("Other."), Say("Bye."))
        chat = stage.chat()
        asked = await chat.say("buy shoes")
        asked.call("call_1:1").update(state="output-error", errorText="I do not want to say it.")
        await chat.answer()
        chat.messages[0]["parts"][0]["text"] = "buy"

        await chat.say("change it")
        await chat.say("bye")

        assert len(await sessions(stage)) == 2


async def test_a_message_that_is_sent_again_is_answered_once(stage: ChatStage) -> None:
    stage.model.script(Say("one"))
    chat = stage.chat()
    first = await chat.say("a")
    chat.messages.pop()

    second = await chat.answer()

    assert second.message == first.message
    assert await contents(stage) == ["a", "one"]


async def test_equal_requests_at_the_same_moment_begin_one_turn(stage: ChatStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("one two", gate=gate))
    chat = stage.chat()
    chat.write("a")

    sent = [asyncio.create_task(chat.post()) for _ in range(3)]
    async with asyncio.timeout(HANG_SECONDS):
        while len(await sessions(stage, "chat-1")) < 1:
            await asyncio.sleep(0.01)
    gate.set()
    answers = [read_answer(read_chunks(response.text)).message for response in await asyncio.gather(*sent)]

    assert [said(one) for one in answers] == [["one two"]] * 3
    assert len({one["id"] for one in answers}) == 1


async def test_results_that_are_sent_again_get_the_same_answer(stage: ChatStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."))
    chat = stage.chat()
    chat.body = {"tools": WEATHER}
    asked = await chat.say("weather?")
    asked.call("call_1").update(state="output-available", output="clear")
    sent = {"messages": [*chat.messages]}

    first, second = [read_chunks((await chat.post(**sent)).text) for _ in range(2)]

    assert [one for one in first if one["type"] == "text-delta"] == [
        one for one in second if one["type"] == "text-delta"
    ]
    assert await contents(stage) == ["weather?", "", "clear", "Sunny."]


async def test_answers_are_sent_again_after_their_events_were_deleted(stage: ChatStage, database_url: str) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Call((replace(ASKS_WEATHER, id="call_2"),), text="And?"), Say("Sunny."))
    chat = stage.chat()
    chat.body = {"tools": WEATHER}
    await chat.say("weather?")
    asked = deepcopy(chat.messages)
    Answer(asked[1]).call("call_1").update(state="output-available", output="clear")
    await run_sql(database_url, "delete from run_events")

    first = (await chat.give("call_1", "clear")).message
    await run_sql(database_url, "delete from run_events")
    chat.messages = deepcopy(asked)
    waiting = said((await chat.answer()).message)
    await chat.give("call_2", "windy")
    await run_sql(database_url, "delete from run_events")
    chat.messages = deepcopy(asked)
    whole = (await chat.answer()).message

    assert said(first) == waiting
    assert waiting[1:] == ["And?", ("weather", "input-available", None)]
    assert said(whole)[1:] == ["And?", ("weather", "output-available", "windy"), "Sunny."]


async def test_an_image_is_given_to_the_model_and_kept(stage: ChatStage) -> None:
    stage.model.script(Say("A dot."))
    chat = stage.chat()

    await chat.say("what is it?", IMAGE)

    (message,) = stage.model.requests[0].prompt.messages
    assert [type(block).__name__ for block in message.content] == ["ImageBlock", "TextBlock"]
    assert (await chat.stored())[0]["parts"] == chat.messages[0]["parts"]


async def test_a_failed_turn_is_an_error_in_the_stream_and_may_be_asked_again(stage: ChatStage) -> None:
    stage.model.script(Fail(ModelRejected("The provider refused.")), Say("Now."))
    chat = stage.chat()

    failed = await chat.say("a")
    chat.messages.pop()
    again = await chat.answer(trigger="regenerate-message")

    assert failed.error == "The provider refused."
    assert said(again.message) == ["Now."]
    assert await contents(stage) == ["a", "Now."]


async def resumed(chat: UIChat) -> httpx.Response:
    return await chat.http.get(f"{chat.path}/{chat.id}/stream")


async def test_a_stream_is_resumed_from_the_answers_beginning(stage: ChatStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Call((ASKS_WEATHER,), text="Wait."), Say("It is sunny.", gate=gate))
    chat = stage.chat()
    chat.body = {"tools": WEATHER}
    asked = await chat.say("weather?")
    asked.call("call_1").update(state="output-available", output={"sky": "clear"})
    sent = asyncio.create_task(chat.post())
    async with asyncio.timeout(HANG_SECONDS):
        while len(stage.model.requests) < 2:
            await asyncio.sleep(0.01)

    shown = [said(one) for one in await chat.stored()]
    async with stage.http.stream("GET", f"{chat.path}/{chat.id}/stream") as response:
        gate.set()
        await response.aread()
    answer = read_answer(read_chunks(response.text))
    await sent

    assert shown == [["weather?"]]
    assert answer.message["id"] == asked.message["id"]
    assert said(answer.message) == ["Wait.", ("weather", "output-available", {"sky": "clear"}), "It is sunny."]


async def test_without_an_answer_that_is_written_nothing_is_resumed(stage: ChatStage) -> None:
    stage.model.script(Say("one"))
    chat = stage.chat()

    assert (await resumed(chat)).status_code == httpx.codes.NO_CONTENT
    await chat.say("a")
    assert (await resumed(chat)).status_code == httpx.codes.NO_CONTENT


async def test_a_turn_can_be_stopped(stage: ChatStage) -> None:
    chat = stage.chat()
    chat.write("a")
    async with stage.claims:
        stage.model.script(Say("one two", gate=asyncio.Event()))
        sent = asyncio.create_task(chat.post())
        async with asyncio.timeout(HANG_SECONDS):
            while not stage.model.requests:
                await asyncio.sleep(0.01)
        assert [said(one) for one in await chat.stored()] == [["a"]]
        stopped = await stage.http.delete(f"{chat.path}/{chat.id}/stream")
        stage.turns.clock.advance(60)
    answer = read_answer(read_chunks((await sent).text))

    assert stopped.status_code == httpx.codes.NO_CONTENT
    assert answer.is_aborted
    assert (await stage.http.delete(f"{chat.path}/none/stream")).status_code == httpx.codes.NO_CONTENT


async def test_a_chat_of_another_user_is_not_there(keyed: ApiStage) -> None:
    anna, ben = await keyed.key("anna"), await keyed.key("ben")
    async with keyed.client(key=anna) as http:
        first = await UIChat(http).say("my secret")
    async with keyed.client(key=ben) as http:
        chat = UIChat(http)
        assert await chat.stored() == []
        assert (await resumed(chat)).status_code == httpx.codes.NO_CONTENT
        chat.messages = [first.message]
        assert (await chat.post()).status_code == httpx.codes.UNPROCESSABLE_ENTITY
        chat.messages = []
        await chat.say("mine")
        own = await chat.stored()
    await keyed.turns.settle()

    assert [said(one) for one in own] == [["mine"], ["Hello back."]]


async def test_the_history_is_read_in_pages_of_whole_turns(stage: ChatStage) -> None:
    chat = stage.chat()
    for number in range(3):
        stage.model.script(Call((ADDS,)), Say(f"answer {number}"))
        await chat.say(f"question {number}")

    newest = await chat.stored(limit=2)
    earlier = await chat.stored(limit=4, before=newest[0]["metadata"]["position"])

    assert [said(one)[-1] for one in newest] == ["question 2", "answer 2"]
    assert [said(one)[-1] for one in earlier] == ["question 1", "answer 1"]
