"""Turns whose agents use tools of servers: offered, called, approved, not repeated after a crash, and away."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.scripted_model import Call, Say
from fakes.scripted_turns import kinds, play, results, resume, send
from fakes.stage import AGENT, Stage, open_stage
from fakes.tool_servers import PlayedServers, served
from fakes.waiting import HANG_SECONDS
from throughline.db.database import Database
from throughline.domain.elicitation import Elicitation
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import RunStatus
from throughline.domain.tool import ApprovalDecision, Resolution, ToolOutcome, WaitKind
from throughline.domain.tool_server import ServedCall, ServedTools, ToolServer
from throughline.turn.prompting.context_report import preview_context, report_context
from throughline.turn.take_turn import take_turn

FILES, MAIL = ToolServer("files", ("files",)), ToolServer("mail", url="http://mail.example/mcp", needs_approval=("s*",))
USES_SERVERS = replace(AGENT, tools=(), mcp_servers=(FILES, MAIL))
READ, SEND = ToolCall("call_1", "files__read", '{"path": "a.txt"}'), ToolCall("call_2", "mail__send", "{}")


async def open_served(database: Database, servers: PlayedServers) -> Stage:
    stage = await open_stage(database, agent=USES_SERVERS)
    stage.dependencies = replace(stage.dependencies, tool_servers=servers)
    return stage


async def test_a_tool_of_a_server_is_offered_and_called(database: Database) -> None:
    servers = PlayedServers({"files": [served(FILES, "read")]})
    stage = await open_served(database, servers)
    stage.model.script(Call((READ,)), Say("It says hello."))

    run = await send(stage, tools=())

    assert run.status is RunStatus.SUCCEEDED
    assert [spec.name for spec in stage.model.requests[0].tools] == ["files__read"]
    assert results(await stage.messages()) == [("call_1", "read was played")]
    assert servers.called == [("read", '{"path": "a.txt"}')]


async def test_tools_of_a_server_that_is_away_are_missing(database: Database) -> None:
    stage = await open_served(database, PlayedServers())
    stage.model.script(Call((READ,)), Say("I cannot."))

    run = await send(stage, tools=())

    assert run.status is RunStatus.SUCCEEDED
    assert stage.model.requests[0].tools == ()
    ((_, told),) = results(await stage.messages())
    assert "There is no tool named 'files__read'" in str(told)


async def test_a_tool_that_needs_approval_waits_for_it(database: Database) -> None:
    servers = PlayedServers({"mail": [served(MAIL, "send", needs_approval=True)]})
    stage = await open_served(database, servers)
    stage.model.script(Call((SEND,)), Say("It is sent."))

    run = await send(stage, tools=())
    assert (kinds(run), servers.called) == ({"call_2": WaitKind.APPROVAL}, [])
    await resume(stage, run, Resolution("call_2", decision=ApprovalDecision.APPROVE))

    assert (await play(stage, run)).status is RunStatus.SUCCEEDED
    assert servers.called == [("send", "{}")]


async def test_an_own_tool_comes_before_one_of_a_server_with_its_name(database: Database) -> None:
    servers = PlayedServers({"files": [served(FILES, "read")]})
    stage = await open_served(database, servers)
    stage.model.script(Call((READ,)))

    run = await send(stage, tools=(ToolSpec("files__read", "The client's own.", {"type": "object"}),))

    assert [spec.description for spec in stage.model.requests[0].tools] == ["The client's own."]
    assert kinds(run) == {"call_1": WaitKind.TOOL_RESULT}


class SilentServers(PlayedServers):
    """Connections of these servers hang."""

    async def tools_of(self, servers: Sequence[ToolServer], *, is_patient: bool = False) -> ServedTools:
        found = await super().tools_of(servers, is_patient=is_patient)
        await asyncio.Event().wait()
        return found


async def test_pages_never_wait_for_a_server(database: Database) -> None:
    servers = SilentServers({"files": [served(FILES, "read")]})
    stage = await open_served(database, servers)

    report = await report_context(stage.dependencies, await stage.reload())
    await preview_context(stage.dependencies, await stage.reload(), "hi")

    assert servers.asked == []
    assert report.tools_tokens > 0


async def test_turns_connect_servers(database: Database) -> None:
    servers = PlayedServers({"files": [served(FILES, "read")]})
    stage = await open_served(database, servers)
    stage.model.script(Say("Hello."))

    await send(stage, tools=())

    assert (servers.asked, servers.patient) == (["files", "mail"], False)


class HangingServers(PlayedServers):
    """The first call hangs."""

    async def call(self, call: ServedCall) -> ToolOutcome | Elicitation:
        outcome = await super().call(call)
        if len(self.called) == 1:
            await asyncio.Event().wait()
        return outcome


@pytest.mark.parametrize(("is_repeatable", "calls"), [(False, 1), (True, 2)])
async def test_only_a_repeatable_tool_is_called_again_after_a_crash(
    database: Database, *, is_repeatable: bool, calls: int
) -> None:
    servers = HangingServers({"files": [served(FILES, "read", is_repeatable=is_repeatable)]})
    stage = await open_served(database, servers)
    stage.model.script(Call((READ,)), Say("Done."))
    run = await stage.submit("hi")
    claimed = await stage.claim()
    turn = asyncio.create_task(take_turn(stage.turn_start(claimed)))
    async with asyncio.timeout(HANG_SECONDS):
        while not servers.called:
            await asyncio.sleep(0.01)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await database.runs.give_back(claimed.lease)

    ended = await play(stage, run)

    assert ended.status is RunStatus.SUCCEEDED
    assert servers.patient
    assert len(servers.called) == calls
    ((_, told),) = results(await stage.messages())
    assert ("unknown" in str(told)) is not is_repeatable
