"""Turns that wait for answers to questions of a tool's server."""

import json
from dataclasses import replace

import pytest

from fakes.scripted_model import Call, Say
from fakes.scripted_turns import kinds, play, results, resume, send
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_servers import PlayedServers, served
from throughline.db.database import Database
from throughline.domain.elicitation import Elicitation, InputRequest, call_of_question
from throughline.domain.errors import InvalidInput, RunNotWaiting
from throughline.domain.events import RunWaiting, ToolProgress
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import ApprovalDecision, Resolution, ToolOutcome, WaitKind, check_answers, read_question
from throughline.domain.tool_server import CallProgress, ServedCall, ServedTool, ToolServer

SHOP = ToolServer("shop", ("shop",), needs_approval=("pay",))
SHOPS = replace(AGENT, tools=(), mcp_servers=(SHOP,))
SIZE = InputRequest("size", "Which size?", {"properties": {"size": {"type": "integer", "minimum": 36}}})
COLOUR = InputRequest("colour", "Which colour?", {"properties": {"colour": {"enum": ["red", "blue"]}}})
BUY = ToolCall("call_1", "shop__buy", '{"what": "shoes"}')
PAY = ToolCall("call_2", "shop__pay", "{}")


def asks_first(call: ServedCall) -> ToolOutcome | Elicitation:
    """Ask for the size, then for the colour, and sell."""
    given = call.elicitation.answers
    if len(given) < 2:
        asked = (SIZE, COLOUR)[len(given)]
        return Elicitation((asked,), earlier=given, state=f"state {len(given)}")
    return ToolOutcome(json.dumps([one.content for one in given]))


async def open_shop(database: Database, servers: PlayedServers) -> Stage:
    stage = await open_stage(database, agent=SHOPS)
    stage.dependencies = replace(stage.dependencies, tool_servers=servers)
    return stage


def buying(answer: object = asks_first) -> PlayedServers:
    tools: list[ServedTool] = [served(SHOP, "buy"), served(SHOP, "pay", needs_approval=True)]
    return PlayedServers({"shop": tools}, answer=answer)  # type: ignore[arg-type]  # a function of the call


def question_of(run: Run) -> str:
    assert run.waiting_for is not None
    (awaited,) = run.waiting_for.calls
    return read_question(awaited.arguments).text


async def answer(stage: Stage, run: Run, question: str, text: str, *, is_error: bool = False) -> Run:
    await resume(stage, run, Resolution(question, text, is_error, author="ann"))
    return await play(stage, run)


async def test_the_questions_of_a_server_are_waited_for_one_by_one(database: Database) -> None:
    servers = buying()
    stage = await open_shop(database, servers)
    stage.model.script(Call((BUY,)), Say("They are yours."))

    run = await send(stage, tools=())
    assert (run.status, kinds(run)) == (RunStatus.WAITING, {"call_1:1": WaitKind.ANSWER})
    assert question_of(run).startswith(
        "The server shop asks, for its tool shop__buy. Answer `decline` to refuse.\n\nWhich size?"
    )
    run = await answer(stage, run, "call_1:1", "42")
    assert kinds(run) == {"call_1:2": WaitKind.ANSWER}
    run = await answer(stage, run, "call_1:2", "blue")

    assert run.status is RunStatus.SUCCEEDED
    assert results(await stage.messages()) == [("call_1", '[{"size": 42}, {"colour": "blue"}]')]
    (result,) = [message for message in await stage.messages() if message.role is Role.TOOL]
    assert result.metadata == {
        "questions": [
            {"question": "Which size?", "answer": "42", "given_by": "ann"},
            {"question": "Which colour?", "answer": "blue", "given_by": "ann"},
        ],
        "waits": 2,
    }
    assert len(servers.called) == 3


async def test_the_question_is_kept_with_the_event_of_the_wait(database: Database) -> None:
    stage = await open_shop(database, buying())
    stage.model.script(Call((BUY,)))

    run = await send(stage, tools=())

    stored = await stage.events(run)
    (waiting,) = [one.event for one in stored if isinstance(one.event, RunWaiting)]
    assert waiting.run.wait is not None
    assert read_question(waiting.run.wait.calls[0].arguments).text == question_of(run)
    assert [call.server for call in waiting.run.wait.calls] == ["shop"]


async def test_an_answer_that_does_not_fit_is_asked_for_again(database: Database) -> None:
    servers = buying()
    stage = await open_shop(database, servers)
    stage.model.script(Call((BUY,)))
    run = await send(stage, tools=())

    with pytest.raises(InvalidInput, match="'size' must be at least 36") as refused:
        check_answers(run.waiting_for, [Resolution("call_1:1", "12")])
    again = await answer(stage, run, "call_1:1", "huge")

    assert refused.value.field == "calls.0.output"
    assert kinds(again) == {"call_1:2": WaitKind.ANSWER}
    assert "The answer does not fit the question: 'size' must be of the type integer." in question_of(again)
    assert len(servers.called) == 1


async def test_a_repeated_answer_changes_nothing_while_the_next_question_waits(database: Database) -> None:
    stage = await open_shop(database, buying())
    stage.model.script(Call((BUY,)))
    run = await send(stage, tools=())
    waiting = await answer(stage, run, "call_1:1", "42")

    again = await database.runs.resume(run.owner_id, run.id, [Resolution("call_1:1", "42", author="ann")])

    assert again.is_repeated
    assert again.run.wait == waiting.wait


async def test_a_repeated_answer_is_known_after_the_end(database: Database) -> None:
    stage = await open_shop(database, buying())
    stage.model.script(Call((BUY,)), Say("They are yours."))
    run = await send(stage, tools=())
    await answer(stage, await answer(stage, run, "call_1:1", "42"), "call_1:2", "blue")

    again = await database.runs.resume(run.owner_id, run.id, [Resolution("call_1:2", "blue", author="ann")])
    with pytest.raises(RunNotWaiting):
        await database.runs.resume(run.owner_id, run.id, [Resolution("call_1:2", "red", author="ann")])

    assert again.is_repeated


async def test_an_approved_call_with_other_arguments_keeps_them_while_it_waits(database: Database) -> None:
    servers = buying()
    stage = await open_shop(database, servers)
    stage.model.script(Call((PAY,)), Say("Paid."))
    run = await send(stage, tools=())
    edit = Resolution("call_2", decision=ApprovalDecision.EDIT, arguments='{"sum": 5}')

    await resume(stage, run, edit)
    run = await play(stage, run)
    assert kinds(run) == {"call_2:1": WaitKind.ANSWER}
    run = await answer(stage, await answer(stage, run, "call_2:1", "40"), "call_2:2", "red")

    assert {arguments for _, arguments in servers.called} == {'{"sum": 5}'}
    (result,) = [message for message in await stage.messages() if message.role is Role.TOOL]
    assert str(result.content).startswith('A person changed the arguments to {"sum": 5} before the call was run.')
    assert (result.metadata["outside"], result.metadata["decision"], result.metadata["waits"]) == (
        "approval",
        "edit",
        2,
    )


async def test_a_question_without_an_answer_expires(database: Database) -> None:
    stage = await open_shop(database, buying())
    stage.model.script(Call((BUY,)), Say("I gave up."))
    run = await send(stage, tools=())
    assert run.wait is not None

    await database.runs.expire_waits(run.wait.until)
    run = await play(stage, run)

    assert run.status is RunStatus.SUCCEEDED
    ((_, told),) = results(await stage.messages())
    assert str(told).startswith("Nothing came from outside in time")


async def test_a_server_that_asks_for_ever_is_given_up(database: Database) -> None:
    def ask_again(call: ServedCall) -> Elicitation:
        return Elicitation((SIZE,), earlier=call.elicitation.answers)

    stage = await open_shop(database, buying(ask_again))
    stage.model.script(Call((BUY,)), Say("It asks too much."))
    run = await send(stage, tools=())
    asked = 0
    while run.status is RunStatus.WAITING:
        asked += 1
        run = await answer(stage, run, f"call_1:{asked}", "40")

    assert (run.status, asked) == (RunStatus.SUCCEEDED, 20)
    ((_, told),) = results(await stage.messages())
    assert told == "The call was given up after 20 questions to a person, repeated ones included."


async def test_a_declined_call_of_an_older_server_is_not_made_again(database: Database) -> None:
    def cannot_wait(_call: ServedCall) -> Elicitation:
        return Elicitation((SIZE,), ended_as="nothing bought")

    servers = buying(cannot_wait)
    stage = await open_shop(database, servers)
    stage.model.script(Call((BUY,)), Say("As you like."))
    run = await send(stage, tools=())
    assert "It has ended with: nothing bought" in question_of(run)

    run = await answer(stage, run, "call_1:1", "no shoes, please", is_error=True)

    assert (run.status, len(servers.called)) == (RunStatus.SUCCEEDED, 1)
    ((_, told),) = results(await stage.messages())
    assert told == "A person declined to answer the server's question. It had returned: nothing bought"


async def test_progress_is_an_event_and_images_are_kept(database: Database) -> None:
    picture = ImageBlock("data:image/png;base64,AAAA")

    def show(call: ServedCall) -> ToolOutcome:
        call.on_progress(CallProgress(1, 2, "half"))
        return ToolOutcome("a picture", images=(picture,))

    stage = await open_shop(database, buying(show))
    stage.model.script(Call((BUY,)), Say("Look."))

    run = await send(stage, tools=())

    assert ToolProgress("call_1", 1, 2, "half") in [one.event for one in await stage.events(run)]
    (result,) = [message for message in await stage.messages() if message.role is Role.TOOL]
    assert result.content == (TextBlock("a picture"), picture)


def test_the_id_of_a_question_names_its_call() -> None:
    assert call_of_question("functions.add:0:12") == "functions.add:0"
