"""AG-UI runs that wait: for results of the front end's tools, approvals and answers, and what continues them."""

from dataclasses import replace

import httpx
import pytest

from ag_ui.test_ag_ui_threads import EARLY, WEATHER, named, stored
from fakes.ag_ui_client import AgUiThread, Json, outcome
from fakes.openai_stage import OPEN_AGENT, OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Say
from fakes.stage import OneTool
from throughline.ag_ui.front_end import AG_UI
from throughline.db.database import Database
from throughline.domain.message import ToolCall
from throughline.domain.tool import MAX_OUTPUT, MAX_REASON

ASKS_WEATHER = ToolCall("call_1", "weather", '{"town": "Graz"}')

DELETE = ToolCall("call_2", "delete", "{}")

QUESTION = ToolCall("q", "ask_user", '{"question": "Which town?", "options": ["Graz", "Bonn"]}')

CAREFUL = replace(OPEN_AGENT, tools=("delete",), needs_approval=frozenset({"delete"}))


def result(call_id: str, content: str) -> Json:
    return {"id": f"result-{call_id}", "role": "tool", "toolCallId": call_id, "content": content}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_tool_of_the_front_end_ends_the_run_and_its_result_continues(
    stage: OpenAIStage, *, is_streamed: bool
) -> None:
    stage.model.script(Call((ASKS_WEATHER,), is_streamed=is_streamed), Say("Sunny."))
    thread = AgUiThread(stage.http, tools=[WEATHER])

    asked = await thread.say("Weather?")
    thread.messages.append(result("call_1", "sun"))
    answered = await thread.run()

    assert outcome(asked) == {"type": "success", "pendingToolCallIds": ["call_1"]}
    assert thread.messages[1]["toolCalls"][0]["function"] == {"name": "weather", "arguments": '{"town": "Graz"}'}
    assert "TOOL_CALL_RESULT" not in [event["type"] for event in answered]
    assert await stored(stage) == ["Weather?", "", "sun", "Sunny."]
    assert thread.texts() == ["Weather?", ["weather"], "sun", "Sunny."]


async def test_a_repeated_result_gets_the_run_that_it_continued(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."))
    thread = AgUiThread(stage.http, tools=[WEATHER])
    await thread.say("Weather?")
    thread.messages.append(result("call_1", "sun"))
    sent = [*thread.messages]
    await thread.run("r")

    thread.messages = sent
    await thread.run("r")

    assert thread.texts() == ["Weather?", ["weather"], "sun", "Sunny."]
    assert await stored(stage) == ["Weather?", "", "sun", "Sunny."]


@pytest.mark.parametrize(
    ("payload", "status", "answer"),
    [
        ({"approved": True}, "resolved", "deleted"),
        (True, "resolved", "deleted"),
        ({"approved": True, "editedArgs": {"all": True}}, "resolved", "deleted"),
        ({"approved": False, "reason": "No!"}, "resolved", "No!"),
        (None, "cancelled", ""),
    ],
)
async def test_an_approval_is_an_interrupt(database: Database, payload: object, status: str, answer: str) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_openai_stage(database, agent=CAREFUL, tools=tool, front_ends=(AG_UI,)) as stage:
        stage.model.script(Call((DELETE,)), Say("Done."))
        thread = AgUiThread(stage.http)

        asked = await thread.say("Delete it")
        (interrupt,) = outcome(asked)["interrupts"]
        given = {"interruptId": interrupt["id"], "status": status}
        answered = await thread.run(resume=[{**given, "payload": payload} if payload is not None else given])

    (shown,) = (event["content"] for event in answered if event["type"] == "TOOL_CALL_RESULT")
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", "call_2")
    assert (answer in shown, len(tool.keys)) == (True, int(answer == "deleted"))
    assert thread.texts()[-1] == "Done."


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (
            {"approved": True, "editedArgs": {"file": "x" * MAX_OUTPUT}},
            "The JSON of edited arguments has at most 1000000 characters, not 1000012.",
        ),
        ({"approved": False, "reason": "x" * (MAX_REASON + 1)}, "A reason has at most 4000 characters, not 4001."),
    ],
)
async def test_a_decision_that_is_too_long_is_refused(database: Database, payload: object, said: str) -> None:
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_openai_stage(database, agent=CAREFUL, tools=tool, front_ends=(AG_UI,)) as stage:
        stage.model.script(Call((DELETE,)))
        thread = AgUiThread(stage.http)
        (interrupt,) = outcome(await thread.say("Delete it"))["interrupts"]

        refused = await thread.post(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}])

    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert refused.json()["errors"] == [{"field": "resume.0.payload", "detail": said}]
    assert not tool.keys


async def test_a_question_of_the_agent_is_an_interrupt(database: Database) -> None:
    async with open_openai_stage(
        database, agent=replace(OPEN_AGENT, tools=("ask_user",)), front_ends=(AG_UI,)
    ) as stage:
        stage.model.script(Call((QUESTION,)), Say("Thanks."), Say("Bye."))
        thread = AgUiThread(stage.http)

        asked = await thread.say("Plan")
        reloaded = AgUiThread(stage.http)
        again = await reloaded.run("reload")
        await thread.run(resume=[{"interruptId": "q", "status": "resolved", "payload": "Graz"}])
        await thread.say("b")

        (interrupt,) = outcome(asked)["interrupts"]
        assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which town?")
        assert interrupt["responseSchema"] == {"type": "string", "enum": ["Graz", "Bonn"]}
        assert (outcome(again), reloaded.texts()) == (outcome(asked), ["Plan", ["ask_user"]])
        assert thread.texts() == ["Plan", ["ask_user"], "Graz", "Thanks.", "b", "Bye."]
        assert await stored(stage) == ["Plan", "", "Graz", "Thanks.", "b", "Bye."]


async def test_an_answer_is_shown_once_if_its_run_is_sent_again(database: Database) -> None:
    asking = replace(OPEN_AGENT, tools=("ask_user",))
    async with open_openai_stage(database, agent=asking, front_ends=(AG_UI,)) as stage:
        stage.model.script(Call((QUESTION,)), Say("Thanks."))
        thread = AgUiThread(stage.http)
        await thread.say("Plan")
        answer = [{"interruptId": "q", "status": "resolved", "payload": "Graz"}]
        await thread.run("r", resume=answer)

        await thread.run("r", resume=answer)

        assert thread.texts() == ["Plan", ["ask_user"], "Graz", "Thanks."]


async def test_an_early_client_gets_no_outcome_that_it_does_not_know(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."))
    thread = AgUiThread(stage.http, tools=[WEATHER])

    asked = await thread.say("Weather?", **EARLY)
    thread.messages.append(result("call_1", "sun"))
    answered = await thread.run(**EARLY)

    assert (outcome(asked), outcome(answered)) == ({"type": "success"}, {"type": "success"})
    assert thread.texts()[-1] == "Sunny."


async def test_answers_may_come_under_the_id_of_the_run_that_waits(database: Database) -> None:
    """As CopilotKit sends them, which also adds a result of its own for the call."""
    tool = OneTool("delete", "deleted", repeatable=False)
    async with open_openai_stage(database, agent=CAREFUL, tools=tool, front_ends=(AG_UI,)) as stage:
        stage.model.script(Call((DELETE,)), Say("Done."))
        thread = AgUiThread(stage.http)
        (interrupt,) = outcome(await thread.say("Delete it", "r"))["interrupts"]
        given = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        thread.messages.append(result("call_2", '{"approved":true}'))

        await thread.run("r", resume=[given])
        answered = thread.texts()
        await thread.run("r", resume=[given])

        assert (answered[-1], thread.texts()[-1], len(tool.keys)) == ("Done.", "Done.", 1)
        assert await stored(stage) == ["Delete it", "", "deleted", "Done."]


async def test_a_waiting_run_stays_when_its_client_goes_away(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."))
    thread = AgUiThread(stage.http, agent="assistant?on_disconnect=cancel", tools=[WEATHER])
    await thread.say("Weather?")

    thread.messages.append(result("call_1", "sun"))
    await thread.run()

    assert await stored(stage) == ["Weather?", "", "sun", "Sunny."]


async def test_an_answer_and_a_new_message_in_one_request_both_count(database: Database) -> None:
    async with open_openai_stage(
        database, agent=CAREFUL, tools=OneTool("delete", "deleted", repeatable=False), front_ends=(AG_UI,)
    ) as stage:
        stage.model.script(Call((DELETE,)), Say("Done."), Say("Noon."))
        thread = AgUiThread(stage.http)
        await thread.say("Delete it")
        approved = [{"interruptId": "call_2", "status": "resolved", "payload": True}]

        await thread.say("And the time?", resume=approved)

        assert await stored(stage) == ["Delete it", "", "deleted", "Done.", "And the time?", "Noon."]


@pytest.mark.parametrize("said", ["Thanks", "sun"])
async def test_a_result_and_a_new_message_in_one_request_both_count(stage: OpenAIStage, said: str) -> None:
    stage.model.script(Call((ASKS_WEATHER,)), Say("Sunny."), Say("Bye."))
    thread = AgUiThread(stage.http, tools=[WEATHER])
    await thread.say("Weather?")

    thread.messages.append(result("call_1", "sun"))
    await thread.say(said)

    assert await stored(stage) == ["Weather?", "", "sun", "Sunny.", said, "Bye."]


async def test_a_result_and_a_message_answer_a_tool_and_a_question(database: Database) -> None:
    async with open_openai_stage(
        database, agent=replace(OPEN_AGENT, tools=("ask_user",)), front_ends=(AG_UI,)
    ) as stage:
        stage.model.script(Call((ASKS_WEATHER, QUESTION)), Say("Sunny in Graz."))
        thread = AgUiThread(stage.http, tools=[WEATHER])
        await thread.say("Weather?")

        thread.messages.append(result("call_1", "sun"))
        await thread.say("Graz")

        asked, step, *results, answer = await stored(stage)
        assert (asked, step, {*results}, answer) == ("Weather?", "", {"sun", "Graz"}, "Sunny in Graz.")


async def test_a_message_beside_a_result_ends_a_turn_that_waits_for_more(database: Database) -> None:
    async with open_openai_stage(
        database, agent=CAREFUL, tools=OneTool("delete", "deleted", repeatable=False), front_ends=(AG_UI,)
    ) as stage:
        stage.model.script(Call((ASKS_WEATHER, DELETE)), Say("Noon."))
        thread = AgUiThread(stage.http, tools=[WEATHER])
        await thread.say("Weather?")

        thread.messages.append(result("call_1", "sun"))
        events = await thread.say("And the time?")

        assert outcome(events) == {"type": "success"}
        assert (await stored(stage))[-2:] == ["And the time?", "Noon."]


async def test_a_reload_with_the_call_of_a_cancelled_run_begins_nothing(stage: OpenAIStage) -> None:
    stage.model.script(Call((ASKS_WEATHER,)))
    thread = AgUiThread(stage.http, tools=[WEATHER])
    await thread.say("Weather?")
    (session,) = await named(stage)
    (run,) = (await stage.http.get(f"/v1/sessions/{session['id']}/runs")).json()["data"]
    await stage.http.post(f"/v1/runs/{run['id']}/cancel")

    events = await thread.run()

    assert ([one["id"] for one in await named(stage)], outcome(events)["type"]) == ([session["id"]], "success")


async def test_an_answer_that_nobody_waits_for_is_refused(stage: OpenAIStage) -> None:
    stage.model.script(Say("one"))
    thread = AgUiThread(stage.http)
    await thread.say("a")

    refused = await thread.post(resume=[{"interruptId": "q", "status": "cancelled"}])

    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (409, "run_not_waiting")
