"""A chat whose turn waits: it asks at the terminal, and says at a pipe what is missing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from io import StringIO

import pytest

from agent_graphs.playing import graph_agent
from fakes.command_stage import CommandStage, TypedLines
from fakes.scripted_model import Call, Say
from fakes.scripted_turns import played
from fakes.stage import AGENT, Stage, make_tool_box, open_stage
from fakes.waiting import until_found
from throughline.agents.registry import AgentRegistry
from throughline.cli.chat.ask_person import chosen_option
from throughline.cli.chat.command import chat
from throughline.cli.chat.state import ChatState
from throughline.cli.screen import Screen
from throughline.db.database import Database
from throughline.domain.message import Source, ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import RunInput, Submission
from throughline.domain.tool import ApprovalDecision, Resolution

DELETES = ToolCall("call_1", "delete", '{"file": "a\\u202etxt.exe"}')
ASKS = ToolCall("call_2", "ask_user", '{"question": "Which\\u001b[31m colour?", "options": ["red", "blue"]}')
CAREFUL = replace(AGENT, tools=("delete", "ask_user"), needs_approval=frozenset({"delete"}))


@dataclass
class Deleting:
    """The tool that needs approval, which keeps what it was called with."""

    files: list[str] = field(default_factory=list)

    def delete(self, file: str) -> str:
        """Delete a file.

        Args:
            file: its name
        """
        self.files.append(file)
        return f"deleted {file}"


@pytest.fixture
def deleting() -> Deleting:
    return Deleting()


@pytest.fixture
async def turns(database: Database, deleting: Deleting) -> Stage:
    tools = make_tool_box(further=(deleting.delete,))
    return await open_stage(database, agent=CAREFUL, tools=tools)


@pytest.fixture
async def dependencies(turns: Stage) -> AsyncIterator[dict[str, object]]:
    async with played(turns) as dependencies:
        yield dependencies


@dataclass
class Chat:
    """What a chat printed."""

    state: ChatState
    out: StringIO
    err: StringIO

    @property
    def shown(self) -> str:
        return self.out.getvalue()


@asynccontextmanager
async def chatting(service: CommandStage, *typed: str | BaseException, session: str = "") -> AsyncIterator[Chat]:
    """Chat at a terminal at which this is typed, in a session that exists if one is named."""
    out, err = StringIO(), StringIO()
    async with service.client() as client:
        known = await client.session(session) if session else None
        state = ChatState(client, Screen(out=out, err=err), "assistant", session=known)
        await chat(state, TypedLines(list(typed)))
        yield Chat(state, out, err)


async def results(service: CommandStage) -> list[object]:
    return [text for (text,) in await service.sql("select content from messages where role = 'tool' order by position")]


async def statuses(service: CommandStage) -> list[object]:
    return [status for (status,) in await service.sql("select status from runs order by seq")]


async def is_waiting(service: CommandStage) -> bool:
    return await statuses(service) == ["waiting"]


async def test_an_approved_call_is_run_and_the_rest_of_the_answer_printed(
    service: CommandStage, turns: Stage, deleting: Deleting
) -> None:
    turns.model.script(Call((DELETES,), text="I delete it."), Say("It is gone."))

    async with chatting(service, "delete it", "what?", "y") as done:
        pass

    assert deleting.files == ["a\u202etxt.exe"]
    assert done.shown.splitlines() == [
        "I delete it.",
        "delete {",
        '  "file": "a\\u202etxt.exe"',
        "}",
        "It is gone.",
    ]
    assert "write y, n or e" in done.err.getvalue()


@pytest.mark.parametrize(
    ("typed", "result", "files"),
    [
        (["n", "Keep it."], "A person rejected this call, so it was not run. Reason: Keep it.", []),
        (["n", ""], "A person rejected this call, so it was not run. No reason was given.", []),
        (["e", "", "e", "[1]", '{"file": "b.txt"}'], "deleted b.txt", ["b.txt"]),
    ],
)
async def test_a_call_is_rejected_with_a_reason_or_run_with_other_arguments(
    service: CommandStage, turns: Stage, deleting: Deleting, typed: list[str], result: str, files: list[str]
) -> None:
    turns.model.script(Call((DELETES,)), Say("Done."))

    async with chatting(service, "delete it", *typed) as done:
        pass

    assert deleting.files == files
    assert str((await results(service))[0]).endswith(result)
    assert done.shown.endswith("Done.\n")


@pytest.mark.parametrize(("typed", "answer"), [(["", "2"], "blue"), (["3"], "3"), ([" green "], "green")])
async def test_a_question_is_answered_by_number_or_in_words(
    service: CommandStage, turns: Stage, typed: list[str], answer: str
) -> None:
    turns.model.script(Call((ASKS,)), Say("A good colour."))

    async with chatting(service, "paint it", *typed) as done:
        pass

    assert await results(service) == [answer]
    assert "? Which colour?\n  1  red\n  2  blue\n" in done.shown


async def test_a_question_of_an_agents_graph_is_answered_at_the_terminal(service: CommandStage, turns: Stage) -> None:
    turns.dependencies = replace(turns.dependencies, agents=AgentRegistry([graph_agent("asking")]))
    turns.model.script(Say("It has a harbour."))

    async with chatting(service, "Tell me of a city.", "1") as done:
        pass

    assert "? Which city?\n  1  Kiel\n  2  Bonn\n" in done.shown
    assert "Tell of ['Kiel']." in str(turns.model.requests[-1].prompt)
    assert done.shown.endswith("It has a harbour.\n")


async def test_several_calls_are_asked_one_after_the_other(
    service: CommandStage, turns: Stage, deleting: Deleting
) -> None:
    turns.model.script(Call((DELETES, ASKS)), Say("All done."))

    async with chatting(service, "do both", "y", "1") as done:
        pass

    assert (len(deleting.files), await statuses(service)) == (1, ["succeeded"])
    assert done.shown.endswith("All done.\n")


@pytest.mark.parametrize("leaving", [KeyboardInterrupt(), None])
async def test_a_question_that_is_left_is_asked_again_on_demand_and_by_the_next_chat(
    service: CommandStage, turns: Stage, deleting: Deleting, leaving: BaseException | None
) -> None:
    turns.model.script(Call((DELETES,), text="I delete it."), Say("It is gone."))
    left: list[str | BaseException] = ["delete it"]
    if leaving is not None:
        left += [leaving, "another message"]

    async with chatting(service, *left) as first:
        assert await statuses(service) == ["waiting"]
        assert first.state.session is not None
        session = first.state.session.id
    async with chatting(service, KeyboardInterrupt(), "/pending", "y", session=session) as second:
        pass

    assert "/pending asks again" in first.err.getvalue()
    assert ("was not sent" in first.err.getvalue()) is (leaving is not None)
    assert second.shown.count("I delete it.\n") == 2
    assert second.shown.endswith("It is gone.\n")
    assert (len(deleting.files), await statuses(service)) == (1, ["succeeded"])


async def test_a_waiting_turn_is_ended_on_demand(service: CommandStage, turns: Stage) -> None:
    turns.model.script(Call((DELETES,)), Say("Hello."))

    async with chatting(service, "/cancel", "delete it", KeyboardInterrupt(), "/cancel", "/pending", "hi") as done:
        pass

    assert await statuses(service) == ["cancelled", "succeeded"]
    assert done.shown.count("No turn of this session waits.") == 2
    assert done.shown.endswith("Hello.\n")


async def test_a_decision_that_another_made_first_is_told_and_the_rest_printed(
    service: CommandStage, turns: Stage, deleting: Deleting
) -> None:
    turns.model.script(Call((DELETES,)), Say("It is kept."))

    class Late(TypedLines):
        async def read(self, question: str = "", text: str = "") -> str | None:
            if question.startswith("approve"):
                ((run_id,),) = await service.sql("select id from runs")
                given = Resolution("call_1", "Keep it.", decision=ApprovalDecision.REJECT)
                await turns.database.runs.resume(service.owner_id, run_id, [given])  # type: ignore[arg-type]  # an id
            return await super().read(question, text)

    out, err = StringIO(), StringIO()
    async with service.client() as client:
        await chat(ChatState(client, Screen(out=out, err=err), "assistant"), Late(["delete it", "y"]))

    assert "takes nothing from outside" in err.getvalue()
    assert out.getvalue().endswith("It is kept.\n")
    assert deleting.files == []


async def test_long_arguments_are_cut_and_the_command_that_shows_them_is_named(
    service: CommandStage, turns: Stage
) -> None:
    call = replace(DELETES, arguments=json.dumps({"file": "x" * 9_000}))
    turns.model.script(Call((call,)))

    async with chatting(service, "delete it", KeyboardInterrupt()) as done:
        pass
    ((run_id,),) = await service.sql("select id from runs")
    whole = await service.run("runs", "show", run_id)

    assert "x" * 9_000 not in done.shown
    assert f"more characters: throughline runs show {run_id}" in done.shown
    assert "x" * 9_000 in whole.stdout


async def test_at_a_pipe_the_exit_code_says_that_the_turn_waits(service: CommandStage, turns: Stage) -> None:
    turns.model.script(Call((ASKS,)))

    result = await service.run("chat", typed="paint it\nnever sent\n")
    ((session_id, run_id),) = await service.sql("select session_id, id from runs")
    again = await service.run("chat", "--session", session_id, typed="/context\nnever sent\n")

    assert (result.exit_code, again.exit_code) == (3, 3)
    assert "Which colour?" in result.stderr
    assert f"throughline runs resume {run_id}" in " ".join(result.stderr.split())
    assert "was not sent" in again.stderr
    assert await service.said() == ["paint it"]


async def test_runs_are_shown_and_resumed_by_commands(service: CommandStage, turns: Stage, deleting: Deleting) -> None:
    turns.model.script(Call((DELETES, ASKS), text="I do both."), Say("Both are done."))
    await service.run("chat", typed="do both\n")
    ((run_id,),) = await service.sql("select id from runs")

    shown = await service.run("runs", "show", run_id)
    unnamed = await service.run("runs", "resume", run_id, "--approve")
    unsaid = await service.run("runs", "resume", run_id)
    first = await service.run("runs", "resume", run_id, "--call", "call_1", "--edit", '{"file": "b.txt"}')
    wrong = await service.run("runs", "resume", run_id, "--approve")
    last = await service.run("runs", "resume", run_id, "--answer", "blue")
    over = await service.run("runs", "resume", run_id, "--answer", "blue")

    assert [one.exit_code for one in (shown, unnamed, unsaid, first, wrong, last, over)] == [0, 1, 2, 3, 1, 0, 1]
    assert "Call     call_2" in shown.stdout
    assert "--call: call_1, call_2" in " ".join(unnamed.stderr.split())
    assert "Both are done." in last.stdout
    assert "I do both." not in last.stdout
    assert deleting.files == ["b.txt"]
    assert set(await results(service)) == {
        'A person changed the arguments to {"file": "b.txt"} before the call was run.\n\ndeleted b.txt',
        "blue",
    }


async def test_a_result_of_a_tool_of_the_client_cannot_be_given_in_a_chat(service: CommandStage, turns: Stage) -> None:
    session = (await service.session()).session.id
    turns.model.script(Call((ToolCall("call_3", "weather", "{}"),)))
    given = RunInput("hi", client_tools=(ToolSpec("weather", "", {"type": "object", "properties": {}}),))
    run = (await turns.database.runs.submit(Submission(service.owner_id, session, given, Source.API), None)).run
    await until_found(lambda: is_waiting(service))

    async with chatting(service, "/quit", session=str(session)) as done:
        pass

    told = " ".join(done.err.getvalue().split())
    assert "the result of weather, which the program that sent the message runs" in told
    assert f"POST /v1/runs/{run.id}/resume" in told
    assert await statuses(service) == ["waiting"]


@pytest.mark.parametrize(("typed", "sent"), [("1", "1"), ("3", "1"), ("2", "10"), ("4", "4"), ("99999", "99999")])
def test_an_option_comes_before_a_number(typed: str, sent: str) -> None:
    assert chosen_option(["5", "10", "1"], typed) == sent
