"""Turns of agents with graphs: messages, events, interrupts, failures, and what a crash leaves."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from agent_graphs import written_graphs
from agent_graphs.playing import graph_agent, play
from fakes.scripted_model import Call, Fail, Hang, Say
from fakes.stage import Stage, open_stage
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.db.sessions.redaction import Redaction
from throughline.domain.errors import ContextOverflow, ModelUnavailable
from throughline.domain.events import (
    AnswerReset,
    GraphEvent,
    MessageCompleted,
    MessageDelta,
    RunEnded,
    RunStarted,
    ToolAnswered,
    ToolCalled,
)
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import ApprovalDecision, Resolution, WaitKind
from throughline.turn.take_turn import take_turn

LOOK_UP = ToolCall("call_1", "look_up", '{"city":"Kiel"}')


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    written_graphs.RAN.clear()


async def contents(stage: Stage) -> list[str]:
    return [text_of(message.content) for message in await stage.messages()]


def shown(stage: Stage, request: int = -1) -> list[str]:
    return [text_of(message.content) for message in stage.model.requests[request].prompt.messages]


async def resume(stage: Stage, run: Run, *given: Resolution) -> Run:
    await stage.database.runs.resume(stage.owner_id, run.id, given)
    return await play(stage, run)


async def test_messages_of_a_graph_are_stored_and_streamed_like_all_others(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Call((LOOK_UP,)), Say("It is sunny."))

    run = await stage.turn("How is it in Kiel?")

    asked, called, result, answer = await stage.messages()
    assert [one.role for one in (asked, called, result, answer)] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
    ]
    assert called.tool_calls == (LOOK_UP,)
    assert (result.tool_call_id, result.name) == ("call_1", "look_up")
    assert {one.run_id for one in (asked, called, result, answer)} == {run.id}
    assert all(one.token_count for one in (asked, called, result, answer))
    events = [event.event for event in await stage.events(run)]
    assert [type(event) for event in events] == [
        *(RunStarted, MessageCompleted, ToolCalled, ToolAnswered, MessageDelta, MessageCompleted, RunEnded)
    ]
    assert [event.message_id for event in events if isinstance(event, MessageDelta)] == [answer.id]


async def test_the_next_turn_is_given_all_of_it_again_and_the_system_prompts_of_both(database: Database) -> None:
    agent = replace(graph_agent("react"), system_prompt="Be brief.")
    stage = await open_stage(database, agent=agent)
    stage.model.script(Call((LOOK_UP,)), Say("It is sunny."), Say("It still is."))
    await stage.turn("How is it in Kiel?")
    await stage.turn("And now?")

    assert stage.model.requests[-1].prompt.system == "Be brief.\n\nYou tell the weather."
    assert [tool.name for tool in stage.model.requests[-1].tools] == ["look_up"]
    assert shown(stage) == (await contents(stage))[:-1]


async def test_a_graph_without_our_model_and_one_that_blocks_its_thread_answer(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("echo"))
    await stage.turn("hello")
    other = await open_stage(database, agent=graph_agent("sync_model"))
    other.model.script(Say("From a thread."))
    await other.turn("hello")

    assert await contents(stage) == ["hello", "You wrote: hello"]
    assert await contents(other) == ["hello", "From a thread."]


async def test_parallel_nodes_may_both_call_the_model(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("parallel"))
    stage.model.by_request = lambda request: Say(text_of(request.prompt.messages[-1].content).upper())

    run = await stage.turn("hello")

    assert run.error is None
    assert (await contents(stage))[-1] == "FIRST and SECOND"
    stored = [one.id for one in await stage.messages()]
    assert len(set(stored)) == len(stored) == 4
    assert run.status is RunStatus.SUCCEEDED


async def test_a_refused_prompt_is_made_smaller_and_an_outage_is_waited_for(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Call((LOOK_UP,)), Fail(ContextOverflow("too long")), Fail(ModelUnavailable("down")), Say("Yes."))

    run = await stage.turn("How is it in Kiel?")

    assert run.status is RunStatus.SUCCEEDED
    sizes = [sum(len(text) for text in shown(stage, number)) for number in (1, 2)]
    assert sizes[1] < sizes[0]
    assert (await contents(stage))[-1] == "Yes."


async def test_a_question_of_a_graph_waits_and_its_answer_goes_on(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("asking"))
    waiting = await stage.turn("Tell me of a city.")
    assert waiting.waiting_for is not None
    (call,) = waiting.waiting_for.calls
    asked = json.loads(call.arguments)
    assert (call.kind, call.server, asked["question"], asked["options"]) == (
        *(WaitKind.ANSWER, "graph", "Which city?", ["Kiel", "Bonn"]),
    )
    stage.model.script(Say("It has a harbour."))

    run = await resume(stage, waiting, Resolution(call.id, "Kiel"))

    assert run.status is RunStatus.SUCCEEDED
    assert await contents(stage) == ["Tell me of a city.", "It has a harbour."]
    assert shown(stage) == ["Tell of ['Kiel']."]
    events = [event.event for event in await stage.events(run)]
    assert GraphEvent({"cities": ["Kiel"]}) in events


async def test_the_state_of_a_graph_stays_for_the_next_turn(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("asking"))
    for city in ("Kiel", "Bonn"):
        waiting = await stage.turn("Tell me of a city.")
        assert waiting.waiting_for is not None
        stage.model.script(Say("It is fine."))
        await resume(stage, waiting, Resolution(waiting.waiting_for.calls[0].id, city))

    assert shown(stage) == ["Tell of ['Kiel', 'Bonn']."]


async def test_an_answer_that_is_an_object_reaches_the_graph_as_one(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("asking"))
    waiting = await stage.turn("Tell me of a city.")
    assert waiting.waiting_for is not None
    stage.model.script(Say("It is fine."))

    await resume(stage, waiting, Resolution(waiting.waiting_for.calls[0].id, '{"city": "Kiel"}'))

    assert shown(stage) == ["Tell of [{'city': 'Kiel'}]."]


async def test_a_question_that_nobody_answers_fails_the_turn(database: Database) -> None:
    agent = replace(graph_agent("asking"), wait_seconds=1.0)
    stage = await open_stage(database, agent=agent)
    waiting = await stage.turn("Tell me of a city.")
    await database.runs.expire_waits(stage.clock.now() + timedelta(days=2))

    run = await play(stage, waiting)

    assert run.error is not None
    assert run.error.type == "graph_wait_expired"


@pytest.mark.parametrize(
    ("given", "ran", "told"),
    [
        (Resolution("call_1", decision=ApprovalDecision.APPROVE), ["Kiel"], "It is sunny in Kiel."),
        (Resolution("call_1", decision=ApprovalDecision.EDIT, arguments='{"city": "Bonn"}'), ["Bonn"], "Bonn"),
        (Resolution("call_1", "Too far.", decision=ApprovalDecision.REJECT), [], "Too far."),
    ],
    ids=["approve", "edit", "reject"],
)
async def test_a_person_decides_on_the_calls_of_a_graph(
    database: Database, given: Resolution, ran: Sequence[str], told: str
) -> None:
    stage = await open_stage(database, agent=graph_agent("approved"))
    stage.model.script(Call((LOOK_UP,)))
    waiting = await stage.turn("How is it in Kiel?")
    assert waiting.waiting_for is not None
    assert [(one.id, one.kind, one.server) for one in waiting.waiting_for.calls] == [
        ("call_1", WaitKind.APPROVAL, None)
    ]
    stage.model.script(Say("So it is."))

    run = await resume(stage, waiting, given)

    assert run.status is RunStatus.SUCCEEDED
    assert list(ran) == written_graphs.RAN
    _, called, result, _ = await stage.messages()
    assert (called.tool_calls, result.tool_call_id) == ((LOOK_UP,), "call_1")
    assert told in text_of(result.content)


async def test_a_graph_goes_on_after_its_process_died(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Call((LOOK_UP,)), Hang("It is"))
    run = await stage.submit("How is it in Kiel?")
    claimed = await stage.claim()
    turn = asyncio.create_task(take_turn(stage.turn_start(claimed)))
    async with asyncio.timeout(HANG_SECONDS):
        while len(stage.model.requests) < 2:
            await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await database.runs.give_back(claimed.lease)
    stage.model.script(Say("It is sunny."))

    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    assert written_graphs.RAN == ["Kiel"]
    assert [one.role for one in await stage.messages()] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert AnswerReset in {type(event.event) for event in await stage.events(run)}


async def test_a_cancel_stops_a_graph_and_keeps_what_was_shown(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Hang("It is sunny and"))
    run = await stage.submit("How is it in Kiel?")
    turn = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    async with asyncio.timeout(HANG_SECONDS):
        while not stage.model.requests:
            await asyncio.sleep(0.01)
    await database.runs.request_cancel(stage.owner_id, run.id)
    stage.clock.advance(HANG_SECONDS)
    await asyncio.wait_for(turn, HANG_SECONDS)

    ended = await database.runs.get_run(stage.owner_id, run.id)
    assert ended.status is RunStatus.CANCELLED
    assert (await contents(stage))[-1].startswith("It is sunny")


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("failing", "graph_failed", "The agent's graph failed with KeyError."),
        ("silent", "graph_failed", "ended without a message of its own"),
        ("unstorable", "graph_failed", "its state.thing has a builtins.object"),
    ],
)
async def test_what_a_graph_does_wrong_is_told_and_loses_no_message(
    database: Database, name: str, code: str, told: str
) -> None:
    stage = await open_stage(database, agent=graph_agent(name))

    run = await stage.turn("hello")

    assert run.error is not None
    assert run.error.type == code
    assert told in run.error.detail
    assert "secret" not in run.error.detail
    assert (await contents(stage))[0] == "hello"


async def test_a_redaction_deletes_the_state_of_the_graph(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Call((LOOK_UP,)), Say("It is sunny."))
    await stage.turn("How is it in Kiel?")
    (first, *_) = await stage.messages()
    assert await database.messages.load_graph_state(stage.session.id) is not None

    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, first.id))

    assert await database.messages.load_graph_state(stage.session.id) is None


async def test_the_stored_state_holds_no_text_of_the_session(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("react"))
    stage.model.script(Call((LOOK_UP,)), Say("It is sunny."))
    await stage.turn("How is it in Kiel?")

    state = await database.messages.load_graph_state(stage.session.id)

    assert state is not None
    assert "Kiel" not in json.dumps(dict(state.data))


async def test_a_graph_is_given_the_tools_of_its_file(database: Database) -> None:
    stage = await open_stage(database, agent=graph_agent("with_tools", tools=["current_time"]))
    stage.model.script(Call((ToolCall("call_1", "current_time", "{}"),)), Say("It is late."))

    run = await stage.turn("How late is it?")

    assert run.status is RunStatus.SUCCEEDED
    assert [tool.name for tool in stage.model.requests[0].tools] == ["current_time"]
    assert "20" in (await contents(stage))[2]
