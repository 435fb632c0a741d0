"""Servers of tools that are programs: well-behaved ones made with the SDK, and such that misbehave."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from fakes import waiting
from fakes.tool_servers import outcome_of, served_call
from fakes.waiting import HANG_SECONDS, until
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import ServedTools, ServerReport, ServerState, ToolServer
from throughline.tools.mcp_client.bounds import Bounds, NotConnected
from throughline.tools.mcp_client.connections import McpConnections

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

from throughline.tools.mcp_client import connection as connection_module
from throughline.tools.mcp_client.connection import Connection

FAKES = Path(waiting.__file__).parent
GOOD = (sys.executable, str(FAKES / "mcp_server.py"))
HOSTILE = (sys.executable, str(FAKES / "hostile_mcp_server.py"))
BOUNDS = Bounds(
    wait_seconds=HANG_SECONDS,
    first_pause_seconds=0.01,
    relist_seconds=0.01,
    close_seconds=0.2,
    message_bytes=200_000,
)
PYTHONPATH = os.pathsep.join(path for path in sys.path if path)
VARIABLES = {"PATH": os.environ["PATH"], "PYTHONPATH_HERE": PYTHONPATH, "SECRET": "s3cret", "UNNAMED": "hidden"}


def read_variable(name: str) -> str:
    return VARIABLES.get(name, "")


def good(**more: object) -> ToolServer:
    return ToolServer("fake", command=GOOD, variables=(("PYTHONPATH", "PYTHONPATH_HERE"),), **more)  # type: ignore[arg-type]  # fields


def hostile(mode: str, *arguments: str, timeout_seconds: float = HANG_SECONDS) -> ToolServer:
    return ToolServer("bad", command=(*HOSTILE, mode, *arguments), timeout_seconds=timeout_seconds)


@pytest.fixture
async def servers() -> AsyncGenerator[McpConnections]:
    async with McpConnections(read_variable, 10_000, bounds=BOUNDS) as made:
        yield made


async def call(servers: McpConnections, server: ToolServer, name: str = "act", **arguments: object) -> ToolOutcome:
    return await outcome_of(servers, await served_call(servers, server, name, **arguments))


async def test_the_tools_of_a_server_have_its_name_and_its_hints(servers: McpConnections) -> None:
    served = await servers.tools_of([good(needs_approval=("a*",))])

    add = served.get("fake__add")
    assert add is not None
    assert (add.name, add.spec.description, add.is_repeatable, add.needs_approval) == (
        "add",
        "Add two numbers.",
        True,
        True,
    )
    assert add.spec.parameters["required"] == ["a", "b"]
    hang = served.get("fake__hang")
    assert hang is not None
    assert (hang.is_repeatable, hang.needs_approval) == (False, False)
    assert served.problems == {}


async def test_an_agent_gets_the_tools_that_its_patterns_name(servers: McpConnections) -> None:
    served = await servers.tools_of([good(tools=("p*", "add", "lost"))])

    assert [tool.name for tool in served.tools] == ["add", "point"]
    assert served.problems == {"fake": "it has no tool 'lost'"}


async def test_results_are_text(servers: McpConnections) -> None:
    assert await call(servers, good(), "add", a=1, b=2) == ToolOutcome("3")
    point = await call(servers, good(), "point")
    assert json.loads(point.text) == {"x": 1, "y": 2}
    blocks = await call(servers, good(), "blocks")
    assert blocks.text.splitlines() == [
        "first",
        "[image image/png, 12 kB]",
        "file:///a.txt",
        "inside b",
        "file:///c.bin [file , 3 bytes]",
    ]


async def test_errors_of_a_tool_are_error_results(servers: McpConnections) -> None:
    assert await call(servers, good(), "raw") == ToolOutcome("said no", is_error=True)
    failed = await call(servers, good(), "fail")
    assert failed.is_error
    wrong = await call(servers, good(), "add", a="x")
    assert wrong.is_error
    add = await served_call(servers, good(), "add")
    assert await outcome_of(servers, add, arguments="[1]") == ToolOutcome(
        "The arguments of fake__add are not valid: send one JSON object.", is_error=True
    )


async def test_a_program_gets_the_named_variables_only(servers: McpConnections) -> None:
    server = ToolServer("fake", command=GOOD, variables=(("PYTHONPATH", "PYTHONPATH_HERE"), ("TOKEN", "SECRET")))

    outcome = await call(servers, server, "variable", wanted="TOKEN")

    names, value = json.loads(outcome.text)
    assert value == "s3cret"
    assert set(names) - {"LC_CTYPE"} == {"PATH", "PYTHONPATH", "TOKEN"}


async def test_a_variable_that_is_not_set_is_named(servers: McpConnections) -> None:
    served = await servers.tools_of([ToolServer("fake", command=GOOD, variables=(("TOKEN", "MISSING"),))])

    assert served.problems == {"fake": "the environment variable MISSING is not set, from which TOKEN is taken"}


async def test_a_cancelled_call_is_cancelled_at_the_server(servers: McpConnections) -> None:
    calling = asyncio.create_task(call(servers, good(), "hang"))
    await call(servers, good(), "add", a=1, b=2)

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    async with asyncio.timeout(HANG_SECONDS):
        while (await call(servers, good(), "cancellations")).text != "1":
            pass


async def test_a_changed_list_is_read_again(servers: McpConnections) -> None:
    assert (await call(servers, good(), "grow")).text == "done"

    async with asyncio.timeout(HANG_SECONDS):
        while (await servers.tools_of([good()])).get("fake__grown") is None:
            await asyncio.sleep(0.02)


async def test_agents_share_the_connection_to_a_server(servers: McpConnections, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    one = hostile("family", str(mark))
    await servers.tools_of([one])
    first = mark.read_text()
    await servers.tools_of([ToolServer("bad", command=one.command, tools=("x",))])

    assert mark.read_text() == first


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("die", "bad__act: the connection to its server ended before the result (Connection closed). "),
        ("flood", "bad__act: the connection to its server ended before the result (Connection closed). "),
        ("not_a_result", "bad__act: the server's answer is not valid MCP. "),
    ],
)
async def test_a_broken_answer_leaves_the_effect_unknown(servers: McpConnections, mode: str, text: str) -> None:
    outcome = await call(servers, hostile(mode))

    assert outcome == ToolOutcome(f"{text}Whether it took effect is unknown.", is_error=True)


@pytest.mark.parametrize("mode", ["die", "flood"])
async def test_a_lost_connection_is_made_again(servers: McpConnections, mode: str) -> None:
    assert (await call(servers, hostile(mode))).is_error

    again = await call(servers, hostile(mode))

    assert "Connection closed" in again.text


async def test_a_program_that_ends_after_its_list_was_renewed_is_started_again() -> None:
    bounds = replace(BOUNDS, relist_seconds=10 * HANG_SECONDS, list_seconds=10 * HANG_SECONDS)
    async with McpConnections(read_variable, 10_000, bounds=bounds) as servers:
        await call(servers, good(), "grow")
        async with asyncio.timeout(HANG_SECONDS):
            while (await servers.tools_of([good()])).get("fake__grown") is None:
                await asyncio.sleep(0.02)
        (program,) = (child for child in psutil.Process().children() if GOOD[1] in child.cmdline())
        program.kill()

        async with asyncio.timeout(HANG_SECONDS):
            while (outcome := await call(servers, good(), "add", a=1, b=2)).is_error:
                await asyncio.sleep(0.02)

    assert outcome.text == "3"


@pytest.mark.parametrize("mode", ["hang", "late"])
async def test_a_call_ends_at_its_time_limit(servers: McpConnections, mode: str, tmp_path: Path) -> None:
    server = hostile(mode, str(tmp_path / "mark"), timeout_seconds=0.1)
    outcome = await call(servers, server)

    assert outcome == ToolOutcome(
        "bad__act did not answer within 0.1 seconds and was given up. Whether it took effect is unknown.",
        is_error=True,
    )
    await until((tmp_path / "mark").exists)  # the protocol's cancellation


async def test_an_answer_after_the_time_changes_nothing(servers: McpConnections) -> None:
    await call(servers, hostile("late", timeout_seconds=0.1))

    assert (await call(servers, hostile("late"))).text == "late"


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("garbage", "after garbage"),
        ("characters", "a\ufffdb\ufffdc"),
        ("chatter", "after chatter"),
        ("errors", "done"),
    ],
)
async def test_noise_does_not_hide_the_answer(servers: McpConnections, mode: str, text: str) -> None:
    assert await call(servers, hostile(mode)) == ToolOutcome(text)


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("refuse", "bad__act was refused by its server: no such tool"),
        ("server_error", "bad__act failed: too many calls\nWhether it took effect is unknown."),
        ("timeout_error", "bad__act failed: not found\nWhether it took effect is unknown."),
    ],
)
async def test_an_error_says_what_the_server_said(servers: McpConnections, mode: str, text: str) -> None:
    assert await call(servers, hostile(mode)) == ToolOutcome(text, is_error=True)


@pytest.mark.parametrize("mode", ["lie", "pattern"])
async def test_a_result_that_does_not_fit_its_schema_is_an_error(servers: McpConnections, mode: str) -> None:
    outcome = await call(servers, hostile(mode))

    assert outcome.is_error
    assert outcome.text.startswith("bad__act was called, but its result does not fit the schema that its server gave: ")


async def test_names_are_such_that_providers_take(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("names")])

    names = {tool.name: tool.spec.name for tool in served.tools}
    assert names["remember"] == "bad__remember"
    assert names["ä"] == "bad___"
    assert names["a.b"].startswith("bad__a_b_")
    assert names["a_b"].startswith("bad__a_b_")
    assert len(set(names.values())) == len(names) == 7
    assert all(len(name) <= 64 for name in names.values())
    assert "the tool 'twice' is left out: it has the name of another tool" in served.problems["bad"]
    assert "the tool 'y\ufffdz' is left out" in served.problems["bad"]


async def test_a_tool_whose_schema_cannot_be_used_is_left_out(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("schemas")])

    assert [tool.name for tool in served.tools] == ["good"]
    assert served.tools[0].spec.description == "see\ufffd" + "d" * 3_996 + " …"
    problems = served.problems["bad"]
    for name, problem in {
        "large": "has an input schema of more than 20,000 bytes",
        "deep": "has an input schema of more than 60 levels",
        "none": "has NUL or half of a surrogate pair in its input schema",
        "infinite": "has NaN or an infinite number in its input schema",
        "no_schema": "has an input schema that is no JSON schema: ",
        "parameter": "has a parameter '$top', whose name providers refuse",
    }.items():
        assert f"the tool {name!r} is left out: it {problem}" in problems


async def test_a_list_that_is_not_valid_is_a_problem(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("array")])

    assert served.problems == {"bad": "its answer is not valid MCP, at tools.1.inputSchema.type"}


async def test_an_agent_gets_a_limited_number_of_tools(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("many")])

    assert len(served.tools) == 128
    assert "200 tools are allowed, of which the first 128 are used" in served.problems["bad"]


async def test_a_list_without_end_is_read_to_a_limit(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("pages")])

    assert len(served.tools) == 20
    assert served.problems == {"bad": "its list of tools was read to the tool 20 only"}


UNANSWERED = Bounds(wait_seconds=0.1, connect_seconds=HANG_SECONDS, close_seconds=0.2)


async def test_a_server_that_does_not_answer_is_a_problem_and_not_an_error() -> None:
    async with McpConnections(read_variable, 10_000, bounds=UNANSWERED) as servers:
        served = await servers.tools_of([hostile("silent")])

    assert served.problems == {"bad": "it is still being connected; its tools come when it has answered"}


@asynccontextmanager
async def one_connection(server: ToolServer, bounds: Bounds) -> AsyncGenerator[Connection]:
    made = Connection(server, read_variable, replace(bounds, close_seconds=0.2), asyncio.Lock())
    try:
        yield made
    finally:
        await made.close()


async def test_only_the_first_turn_waits_for_a_server_that_hangs_while_it_is_connected() -> None:
    async with one_connection(hostile("silent"), UNANSWERED) as connection:
        with pytest.raises(NotConnected, match="still being connected"):
            await connection.tool_list()
        with pytest.raises(NotConnected, match="still being connected"):
            connection.tool_list().send(None)  # raised before anything is awaited


async def test_a_call_and_a_resumed_turn_wait_until_the_server_is_connected() -> None:
    async with one_connection(good(), Bounds(wait_seconds=0.0)) as connection:
        with pytest.raises(NotConnected, match="still being connected"):
            await connection.tool_list()
        listed = await connection.tool_list(is_patient=True)
        assert "add" in {tool.name for tool in listed.tools}


IMPATIENT = Bounds(wait_seconds=HANG_SECONDS, connect_seconds=0.2, first_pause_seconds=0.01)


async def test_each_attempt_that_hangs_is_waited_for_and_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HEALTHY_SECONDS", 0.0)
    with capture_logs() as logs:
        async with one_connection(hostile("silent"), IMPATIENT) as connection:
            for _ in range(2):
                error = (await asyncio.gather(connection.tool_list(), return_exceptions=True))[0]
                assert "did not list its tools" in str(error)

    assert [log["failures"] for log in logs if log["event"] == "mcp connection failed"] == [1, 2]


async def test_the_tools_listed_last_are_known_without_a_connection(servers: McpConnections) -> None:
    before = servers.known_tools([good()])
    await servers.tools_of([good()])
    await servers.__aexit__(None, None, None)

    assert before == ServedTools((), {"fake": "no turn has connected it yet"})
    assert servers.known_tools([good()]).get("fake__add") is not None


async def test_a_server_that_fails_is_called_again_after_a_growing_pause() -> None:
    bounds = Bounds(wait_seconds=HANG_SECONDS, first_pause_seconds=10 * HANG_SECONDS, longest_pause_seconds=10_000)
    async with McpConnections(read_variable, 10_000, bounds=bounds) as servers:
        first = await servers.tools_of([hostile("refuse_start")])
        second = await servers.tools_of([hostile("refuse_start")])

    assert first.problems == second.problems == {"bad": "its program ended, or closed its output"}


async def test_a_program_that_does_not_exist_is_named(servers: McpConnections) -> None:
    served = await servers.tools_of([ToolServer("fake", command=("no-such-program",))])

    assert served.problems == {"fake": "there is no program 'no-such-program' on PATH"}


async def test_one_bad_server_does_not_take_the_tools_of_another(servers: McpConnections) -> None:
    served = await servers.tools_of([hostile("refuse_start"), good()])

    assert served.get("fake__add") is not None
    assert set(served.problems) == {"bad"}


async def test_a_program_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with McpConnections(read_variable, 10_000, bounds=BOUNDS) as servers:
        await servers.tools_of([hostile("family", str(mark))])
        pids = json.loads(mark.read_text())
        assert [has_ended(pid) for pid in pids] == [False, False]

    await until(lambda: all(has_ended(pid) for pid in pids))


async def test_the_report_of_a_server_says_what_is_known_of_it(servers: McpConnections) -> None:
    before = servers.report(good())
    listed = await servers.tools_of([good(), ToolServer("fake", command=("no-such-program",))])

    found, lost = servers.report(good(tools=("x",))), servers.report(ToolServer("fake", command=("no-such-program",)))

    assert before == ServerReport("fake", ServerState.UNUSED)
    assert (found.state, found.tools, found.protocol) == (ServerState.CONNECTED, len(listed.tools), "2026-07-28")
    assert found.listed_seconds_ago is not None
    assert (lost.state, lost.reason) == (ServerState.FAILED, "there is no program 'no-such-program' on PATH")
    assert lost.tools is None


async def test_a_changed_list_is_reported_and_logged_once(servers: McpConnections) -> None:
    with capture_logs() as logs:
        await call(servers, good(), "grow")
        async with asyncio.timeout(HANG_SECONDS):
            while servers.report(good()).last_change is None:
                await servers.tools_of([good()])
                await asyncio.sleep(0.02)

    change = servers.report(good()).last_change
    assert change is not None
    assert (change.added, change.removed, change.changed) == (1, 0, 0)
    assert [(line["added"], line["removed"]) for line in logs if line["event"] == "mcp tools changed"] == [(1, 0)]


async def test_a_report_shows_no_values_of_variables() -> None:
    bounds = Bounds(wait_seconds=HANG_SECONDS, close_seconds=0.2)
    server = ToolServer("bad", command=(*HOSTILE, "names"), variables=(("X", "REMEMBERED"),))
    async with McpConnections(lambda name: VARIABLES.get(name, "twice"), 10_000, bounds=bounds) as servers:
        await servers.tools_of([server])
        report = servers.report(server)

    assert report.problems
    assert "twice" not in " ".join(report.problems)


async def test_a_server_that_no_agent_names_any_more_is_ended(servers: McpConnections, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    await servers.tools_of([hostile("family", str(mark))])
    add = await served_call(servers, good(), "add", a=1, b=2)

    await servers.keep_only([good(tools=("a*",))])

    await until(lambda: all(has_ended(pid) for pid in json.loads(mark.read_text())))
    told = await servers.tools_of([hostile("family", str(mark))])
    assert told.problems == {"bad": "no agent names it any more"}
    assert (await outcome_of(servers, add)).text == "3"


async def test_a_server_that_is_named_again_is_connected_again(servers: McpConnections) -> None:
    await servers.tools_of([good()])
    await servers.keep_only([])
    await servers.keep_only([good()])

    assert (await servers.tools_of([good()])).get("fake__add") is not None


async def test_nothing_is_connected_after_the_end(servers: McpConnections) -> None:
    add = await served_call(servers, good(), "add", a=1, b=2)
    await servers.__aexit__(None, None, None)

    outcome = await outcome_of(servers, add)
    assert outcome.text == "fake__add was not called: its server is not connected: the service is stopping."


OWNER = """
import asyncio, sys
from tool_servers.test_programs import hostile, read_variable
from throughline.tools.mcp_client.connections import McpConnections

async def main():
    async with McpConnections(read_variable, 10_000) as servers:
        print(await servers.tools_of([hostile("family", sys.argv[1])]), flush=True)
        await asyncio.sleep(1_000)

asyncio.run(main())
"""


async def test_programs_die_with_a_service_that_was_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command, env = (sys.executable, "-c", OWNER, str(mark)), {**os.environ, "PYTHONPATH": PYTHONPATH}
    owner = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    assert owner.stdout is not None
    assert b"ServedTools" in await owner.stdout.readline()
    pids = json.loads(mark.read_text())

    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    await until(lambda: all(has_ended(pid) for pid in pids))


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
