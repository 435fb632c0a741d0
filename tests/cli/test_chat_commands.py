from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from click.testing import Result

from fakes.command_stage import CommandStage
from fakes.event_log import MESSAGE_ID
from fakes.scripted_turns import REPORT, Script, said
from fakes.wire_shapes import NOW, session_out
from throughline.cli.chat.slash_commands import run_command
from throughline.cli.chat.state import ChatState
from throughline.cli.client import ServiceClient
from throughline.cli.screen import Screen
from throughline.context.explain_context import FiringGauge, NextAction, SummaryReport
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    MessageDelta,
    ToolCallDelta,
    ToolCalled,
)
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.run import RunError
from throughline.domain.session import NewSession
from throughline.domain.summary import CompactionOutcome, Spent
from throughline.wire.sessions import SummarizeOut


async def test_lines_from_a_pipe_are_answered_one_by_one_in_one_new_session(service: CommandStage) -> None:
    service.api.turns.scripts = [said("Good ", "day"), said("Again")]

    result = await service.run("chat", typed="hi there\n\nonce more\n")

    assert result.exit_code == 0, result.output
    assert result.stdout == "Good day\nAgain\n"
    assert await service.said() == ["hi there", "once more"]
    assert await service.titles() == ["hi there"]
    assert len({request.headers["idempotency-key"] for request in service.way.streams}) == 2


async def test_no_session_is_made_before_the_first_message(service: CommandStage) -> None:
    result = await service.run("chat", typed="/help\n/quit\nnever sent\n")

    assert result.exit_code == 0
    assert "/summarize [from N] [INSTRUCTIONS]" in result.stdout
    assert await service.titles() == []


async def test_resuming_says_how_long_the_history_is(service: CommandStage) -> None:
    talk = await service.talk(52)
    await talk.adopt((await talk.messages())[24])

    result = await service.run("chat", "--session", talk.session.id, typed="/history 2\n")

    assert result.stdout.splitlines() == [
        "52 messages in history (25 summarized)",
        "#51 user text 51",
        "#52 assistant text 52",
    ]


async def test_resuming_says_how_far_a_summary_that_is_ready_reaches(service: CommandStage) -> None:
    talk = await service.talk(66)
    await talk.prepare((await talk.messages())[47])
    ready = SummaryReport(48, 90, NOW, through_id=None, through_position=48, model="m")
    service.api.pins.report = replace(service.api.pins.report, prepared=ready)
    line = "66 messages in history (0 summarized, a summary ready through #48)"

    resumed = await service.run("chat", "--session", talk.session.id, typed=f"/resume {talk.session.id}\n")
    shown = await service.run("sessions", "show", talk.session.id)

    assert resumed.stdout.splitlines().count(line) == 2
    assert shown.stdout.splitlines().count(line) == 1


async def test_history_pages_back_as_far_as_asked(service: CommandStage) -> None:
    talk = await service.talk(250)

    result = await service.run("chat", "--session", talk.session.id, typed="/history 230\n")

    assert len(result.stdout.splitlines()) == 231
    assert "#21 user text 21" in result.stdout
    assert "#20 " not in result.stdout


async def test_history_cuts_a_long_message_and_says_how_to_see_it_whole(service: CommandStage) -> None:
    lines = [f"line {n}" for n in range(500)]
    talk = await service.talk(4, texts={1: "\n".join(lines), 2: "word " * 5_000, 3: "\n".join(lines[:18])})

    result = await service.run("chat", "--session", talk.session.id, typed="/history\n/read 1-1\n")

    shown = result.stdout.splitlines()[1:]
    assert shown[:13] == [f"#1 user {lines[0]}", *lines[1:12], "… 488 lines left out; /read 1-1 shows it whole"]
    assert shown[13] == "#2 assistant " + " ".join(["word"] * 300)
    assert shown[14] == "… 23,500 characters left out; /read 2-2 shows it whole"
    assert shown[15:33] == [f"#3 user {lines[0]}", *lines[1:18]]
    assert shown[33:] == ["#4 assistant text 4", f"#1 user {lines[0]}", *lines[1:]]


async def test_a_search_prints_positions_that_read_takes(service: CommandStage) -> None:
    talk = await service.talk(9, texts={5: "word " * 20 + "lunar\x07 eclipse"})
    typed = "/search lunar eclipse\n/read 5\n/read 8-9\n"

    result = await service.run("chat", "--session", talk.session.id, typed=typed)

    path = f"/v1/sessions/{talk.session.id}/search"
    assert service.asked_at("/search") == [(path, {"q": "lunar eclipse", "limit": "10"})]
    whole, lines = "#5 user " + "word " * 20 + "lunar eclipse", result.stdout.splitlines()
    assert lines[1] == "#5 user …" + "word " * 7 + "lunar\ufffd eclipse"
    assert lines[-7:] == [
        whole if n == 5 else f"#{n} {'user' if n % 2 else 'assistant'} text {n}" for n in (3, 4, 5, 6, 7, 8, 9)
    ]


@pytest.mark.parametrize("typed", ["/search", "/read x", "/read", "/read 0", "/read 99999999999"])
async def test_a_search_or_a_position_that_says_nothing_is_refused(service: CommandStage, typed: str) -> None:
    talk = await service.talk(9)

    result = await service.run("chat", "--session", talk.session.id, typed=f"{typed}\n")

    assert f"Write {typed[:5]}" in result.stderr


async def test_sessions_are_searched_from_the_command_line(service: CommandStage) -> None:
    session_id = (await service.talk(1)).session.id

    everywhere = await service.run("sessions", "search", "text")
    inside = await service.run("sessions", "search", "text", "--session", session_id)

    assert everywhere.stdout == f"{session_id} #1 user text 1\n"
    assert inside.stdout == "#1 user text 1\n"
    assert [path for path, _ in service.asked_at("/search")] == ["/v1/search", f"/v1/sessions/{session_id}/search"]


async def test_sessions_are_numbered_and_resumed_by_number_or_id(service: CommandStage) -> None:
    await service.talk(2, title="first")
    second = await service.talk(4, title="second")

    by_number = await service.run("chat", typed="/sessions\n/resume 2\n/resume 1\n")
    by_id = await service.run("chat", typed=f"/resume {second.session.id}\n")

    assert "4 messages in history\n" in by_number.stdout
    assert "first (assistant)" in by_number.stdout
    assert "second (assistant)" in by_id.stdout


async def test_a_session_is_resumed_by_the_first_characters_of_its_id(service: CommandStage) -> None:
    talk = await service.talk(4, title="mine")

    result = await service.run("chat", typed=f"/resume {str(talk.session.id)[:13]}\n")

    assert "mine (assistant)\n4 messages in history\n" in result.stdout


async def test_new_leaves_the_session(service: CommandStage) -> None:
    talk = await service.talk(2)

    await service.run("chat", "--session", talk.session.id, typed="/new\nhello\n")

    assert len(await service.titles()) == 2


async def test_context_draws_the_bars(service: CommandStage) -> None:
    talk = await service.talk(2)
    service.api.pins.report = replace(
        REPORT,
        messages_since_summary=29,
        total_tokens=4_096,
        will_trigger=True,
        next_action=NextAction.COMPACT,
        next_trigger=FiringGauge.WINDOW,
    )

    result = await service.run("chat", "--session", talk.session.id, typed="/context\n")

    assert "29 / 30" in result.stdout
    assert "4,096 / 8,192 ⚡" in result.stdout
    assert "older messages are shortened or summarized first" in result.stdout


@pytest.mark.parametrize("outcome", ["skipped", "failed"])
async def test_a_summary_that_is_not_adopted_is_told_without_numbers(outcome: str) -> None:
    session = session_out(message_count=8)
    told = {"detail": "Not worth it.", "tokens_before": 345, "tokens_after": 345}
    done = SummarizeOut.model_validate({"outcome": outcome, "session": session, "spent": Spent(), **told})
    reply = httpx.Response(200, content=done.model_dump_json())
    out = StringIO()

    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: reply), base_url="http://x") as http:
        screen = Screen(out=out, err=StringIO())
        state = ChatState(ServiceClient(http, place="the fake"), screen, "assistant", session=session)
        await run_command(state, "/summarize")

    assert out.getvalue() == f"Summary {outcome}: Not worth it.\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/contxt", "Did you mean /context?"),
        ("/context", "begins with the first one"),
        ("/resume nowhere", "Write /resume with a session's id"),
        ("/resume 9", "no session 9"),
        (f"/resume {UUID(int=99)}", f"There is no session {UUID(int=99)}"),
    ],
)
async def test_a_wrong_command_is_one_line_that_says_what_to_do(service: CommandStage, typed: str, hint: str) -> None:
    result = await service.run("chat", typed=f"{typed}\n")

    assert result.exit_code == 1
    assert hint in result.stderr
    assert "Traceback" not in result.output


async def test_a_message_may_begin_with_a_slash_written_twice(service: CommandStage) -> None:
    await service.run("chat", typed="//etc/hosts\n")

    assert await service.said() == ["/etc/hosts"]


async def test_tools_and_compactions_are_told_beside_the_answer(service: CommandStage) -> None:
    adopted = CompactionFinished(
        cause="threshold",
        outcome=CompactionOutcome.ADOPTED,
        detail="",
        fired=(),
        tokens_before=7000,
        tokens_after=900,
        through_position=7,
    )
    fired = ("pruned", "pruned_aggressively")
    steps = (
        CompactionStarted(cause="threshold", tokens=7000),
        adopted,
        replace(adopted, outcome=CompactionOutcome.PRUNED, fired=fired, tokens_before=900, tokens_after=700),
        ToolCallDelta(MESSAGE_ID, 0, "1", "calculator", '{"x": 1}'),
        ToolCalled(ToolCall("1", "calculator", '{"x": 1}'), MESSAGE_ID),
        NewMessage(Role.TOOL, "2\n3", Source.CLI, tool_call_id="1", name="calculator"),
        MessageDelta(MESSAGE_ID, "It is 2."),
    )
    service.api.turns.scripts = [Script(steps, "It is 2.")]

    result = await service.run("chat", typed="1+1\n")

    assert result.stdout == "It is 2.\n"
    assert "making the prompt smaller (7,000 tokens in the prompt)" in result.stderr
    assert "summary adopted: 7,000 → 900 tokens, messages up to #7 summarized" in result.stderr
    assert "prompt reduced (pruned, pruned aggressively): 900 → 700 tokens\n" in result.stderr
    assert result.stderr.count('calculator {"x": 1}') == 1
    assert "calculator returned: 2 3" in result.stderr


async def test_what_the_service_sends_cannot_command_the_terminal(service: CommandStage) -> None:
    service.api.turns.scripts = [said("\x1b[2J[red]plain[/red]\x07", "\x1b", "[31m")]

    result = await service.run("chat", typed="x\n")

    assert result.stdout == "[red]plain[/red][31m\n"


async def test_an_answer_whose_pieces_are_lost_is_shown_from_the_stored_message(service: CommandStage) -> None:
    service.api.turns.scripts = [Script((AnswerReset(2),), "whole")]

    assert (await service.run("chat", typed="x\n")).stdout == "whole\n"


async def test_a_failed_turn_is_an_error_with_the_services_own_words(service: CommandStage) -> None:
    service.api.turns.answer = "Hal"
    service.api.turns.error = RunError("model_quota", "No quota left.")

    result = await service.run("chat", typed="x\nnever sent\n")

    assert result.exit_code == 1
    assert result.stdout == "Hal\n"
    assert "Error: No quota left." in result.stderr
    assert await service.said() == ["x"]


async def test_the_error_of_a_failed_turn_ends_with_what_the_provider_said(service: CommandStage) -> None:
    service.api.turns.error = RunError("model_invalid_request", "Refused (400).", "set --enable-this\x1b")

    result = await service.run("chat", typed="x\n")

    assert "Error: Refused (400). The provider said: set --enable-this" in result.stderr
    assert "\x1b" not in result.stderr


async def test_an_unknown_agent_is_told_before_anything_is_typed(service: CommandStage) -> None:
    result = await service.run("chat", "nobody")

    known = "assistant, quick_assistant, researcher"
    assert result.exit_code == 1
    assert result.stderr == f"Error: There is no agent 'nobody'. The service has: {known}.\n"


async def test_an_agent_that_is_not_the_sessions_is_a_usage_error(service: CommandStage) -> None:
    result = await service.run("chat", "researcher", "--session", (await service.session()).session.id)

    assert result.exit_code == 2
    assert "belongs to the agent assistant" in result.stderr


async def test_another_agent_answers_in_the_same_session(service: CommandStage) -> None:
    service.api.turns.scripts = [said("one"), said("two")]

    result = await service.run("chat", typed="hi\n/agent researcher\nand now\n/agent\n")
    unknown = await service.run("chat", typed="/agent nobody\n")

    assert result.stdout.splitlines()[:3] == ["one", "researcher answers from the next message on.", "two"]
    assert "researcher answers. The agents are: assistant" in result.stdout
    assert "There is no agent 'nobody'. The service has: assistant" in unknown.stderr


async def test_before_the_first_message_the_new_session_gets_the_agent(service: CommandStage) -> None:
    service.api.turns.scripts = [said("one")]

    await service.run("chat", typed="/agent researcher\nhi\n")

    async with service.api.client() as client:
        assert [row["agent"] for row in (await client.get("/v1/sessions")).json()["data"]] == ["researcher"]


Throughline = Callable[..., Result]
FIRST = "0a1b2c3d-0000-7000-8000-000000000001"
SECOND = "0a1b2c3e-0000-7000-8000-000000000002"


async def named(service: CommandStage, session_id: str, title: str = "", *, owner_id: UserId | None = None) -> None:
    """Open a session with two messages under this id."""
    talk = await service.talk(0)
    if owner_id is not None:
        new = NewSession(owner_id=owner_id, agent="assistant", title=title, source=Source.CLI, metadata={})
        talk.session, _ = await service.api.database.sessions.create(new)
    await service.sql(
        "update sessions set id = $2, title = $3 where id = $1", talk.session.id, SessionId(UUID(session_id)), title
    )


@pytest.fixture
async def two(service: CommandStage) -> CommandStage:
    await named(service, FIRST, "Harbour")
    await named(service, SECOND, "Sea\x1b[2J")
    return service


@pytest.mark.parametrize(
    "arguments",
    [
        ("chat", "--session", "0a1b2c3d"),
        ("sessions", "show", "0A1B2C3D"),
        ("sessions", "context", "0a1b2c3d-0"),
        ("sessions", "export", "0a1b2c3d0000"),
        ("sessions", "summaries", "0a1b2c3d"),
        ("sessions", "show", "0a1-b2c3d"),
        ("sessions", "show", "-".join("0a1b2c3d0000700080")),
        ("sessions", "show", "-".join("0a1b2c3d00007000800000000000000")),
        ("sessions", "search", "text", "--session", "0a1b2c3d"),
    ],
)
async def test_first_characters_that_one_id_has_are_enough(two: CommandStage, arguments: tuple[str, ...]) -> None:
    result = await two.run(*arguments)

    assert result.exit_code == 0, result.output
    assert any(FIRST in request.url.path for request in two.way.asked)
    assert not any(SECOND in request.url.path for request in two.way.asked)


async def test_a_session_is_asked_about_by_its_whole_id_before_it_is_deleted(two: CommandStage) -> None:
    kept = await two.run("sessions", "delete", "0a1b2c3d", typed="n\n")
    redacted = await two.run("sessions", "redact", "0a1b2c3d", "1", typed="n\n")
    gone = await two.run("sessions", "delete", "0a1b2c3d", typed="y\n")

    assert (kept.exit_code, redacted.exit_code, gone.exit_code) == (1, 1, 0)
    assert f"Delete session {FIRST}" in kept.stderr
    assert f"of session {FIRST}" in redacted.stderr
    assert await two.sql("select id::text from sessions where title <> ''") == [(SECOND,)]


@pytest.mark.parametrize("command", [("delete", "0a1b2c3d"), ("redact", "0a1b2c3d", "1")])
async def test_without_a_question_a_session_needs_its_whole_id(two: CommandStage, command: tuple[str, ...]) -> None:
    refused = await two.run("sessions", *command, "--yes")
    unclear = await two.run("sessions", command[0], "0a1b", *command[2:], "--yes")

    assert (refused.exit_code, unclear.exit_code) == (2, 1)
    assert FIRST in refused.stderr
    assert "2 sessions have ids that begin with 0a1b." in unclear.stderr
    assert len(await two.sql("select id from sessions where title <> ''")) == 2


async def test_first_characters_of_several_ids_list_them(two: CommandStage) -> None:
    result = await two.run("sessions", "show", "0a1b")

    *candidates, error = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split()[1] for line in candidates] == [SECOND, FIRST]
    assert [line.split()[-1] for line in candidates] == ["Sea", "Harbour"]
    assert error == "Error: 2 sessions have ids that begin with 0a1b. Write more characters of the one you mean."


async def test_at_most_ten_candidates_are_listed(service: CommandStage) -> None:
    for n in range(12):
        await named(service, f"0a1b2c3d-0000-7000-8000-{n:012x}")

    result = await service.run("chat", "--session", "0a1b2c")

    assert len(result.stderr.splitlines()) == 11
    assert "Error: More than 10 sessions have ids that begin with 0a1b2c." in result.stderr


async def test_only_sessions_of_the_user_are_found_archived_ones_too(service: CommandStage) -> None:
    await named(service, FIRST, owner_id=await service.api.database.users.get_or_create("mallory"))
    await named(service, SECOND)
    await service.sql("update sessions set archived = true where id::text = $1", SECOND)

    mine = await service.run("sessions", "show", "0a1b")
    other = await service.run("sessions", "show", "0a1b2c3d")

    assert f"{SECOND} (archived)" in mine.stdout
    assert other.exit_code == 1
    assert "Error: You have no session whose id begins with 0a1b2c3d. `throughline sessions list`" in other.stderr


@pytest.mark.parametrize("given", ["0a1", "latest", "0a1-", "0a1b-\x1b[2J", f"{FIRST}0", "-".join("0a1b" * 8 + "0")])
def test_what_begins_no_id_is_a_usage_error(throughline: Throughline, given: str, tmp_path: Path) -> None:
    result = throughline("sessions", "export", given, "--output", str(tmp_path / "x"))

    assert result.exit_code == 2
    assert "is neither a session's id nor the first 4 or more characters of one." in " ".join(result.stderr.split())
