from collections.abc import Callable
from io import StringIO
from uuid import UUID

import httpx
import pytest
from click.testing import Result

from app.cli.chat_commands import run_command
from app.cli.chat_state import ChatState
from app.cli.client import ServiceClient
from app.cli.screen import Screen
from app.domain.events import EventType
from app.wire.events import CompactionFinished, CompactionStarted, Reset, RunFailed, ToolResult
from app.wire.messages import ToolCallOut
from app.wire.runs import ErrorOut
from app.wire.sessions import SummarizeOut
from app.wire.shape import Shape
from fakes.fake_parts import FakeWorld
from fakes.fake_service import Event, answer_of, delta, ending, started
from fakes.wire_shapes import context_out, hit_out, run_out, session_out

Throughline = Callable[..., Result]


def test_lines_from_a_pipe_are_answered_one_by_one_in_one_new_session(
    world: FakeWorld, throughline: Throughline
) -> None:
    world.service.scripts = [answer_of("Good ", "day"), answer_of("Again")]

    result = throughline("chat", typed="hi there\n\nonce more\n")

    assert result.exit_code == 0, result.output
    assert result.stdout == "Good day\nAgain\n"
    assert [item.content for item in world.service.received] == ["hi there", "once more"]
    assert [session.title for session in world.service.sessions.values()] == ["hi there"]
    assert len({item.key for item in world.service.received}) == 2


def test_no_session_is_made_before_the_first_message(world: FakeWorld, throughline: Throughline) -> None:
    result = throughline("chat", typed="/help\n/quit\nnever sent\n")

    assert result.exit_code == 0
    assert "/summarize [FOCUS]" in result.stdout
    assert world.service.sessions == {}


def test_resuming_says_how_long_the_history_is(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(7, messages=52, summarized=25)

    result = throughline("chat", "--session", session_id, typed="/history 2\n")

    assert result.stdout.splitlines() == [
        "52 messages in history (25 summarized)",
        "#51 user text 51",
        "#52 assistant text 52",
    ]


def test_history_pages_back_as_far_as_asked(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(7, messages=250)

    result = throughline("chat", "--session", session_id, typed="/history 230\n")

    assert len(result.stdout.splitlines()) == 231
    assert "#21 user text 21" in result.stdout
    assert "#20 " not in result.stdout


def test_a_search_prints_positions_that_read_takes(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(7, messages=9)
    message = world.service.messages[session_id][4]
    world.service.hits = [hit_out(message, snippet="…text\x1b 5", highlights=[(1, 5)])]

    result = throughline("chat", "--session", session_id, typed="/search text five\n/read 5\n/read 8-9\n")

    assert world.service.searched == [{"path": f"/v1/sessions/{session_id}/search", "q": "text five", "limit": "10"}]
    assert result.stdout.splitlines()[1:] == [
        "#5 user …text\ufffd 5",
        *(f"#{n} {'user' if n % 2 else 'assistant'} text {n}" for n in (3, 4, 5, 6, 7, 8, 9)),
    ]


@pytest.mark.parametrize("typed", ["/search", "/read x", "/read", "/read 0", "/read 99999999999"])
def test_a_search_or_a_position_that_says_nothing_is_refused(
    world: FakeWorld, throughline: Throughline, typed: str
) -> None:
    session_id = world.service.add_session(7, messages=9)

    result = throughline("chat", "--session", session_id, typed=f"{typed}\n")

    assert f"Write {typed[:5]}" in result.stderr


def test_sessions_are_searched_from_the_command_line(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(7, messages=1)
    world.service.hits = [hit_out(world.service.messages[session_id][0], session_id=session_id)]

    everywhere = throughline("sessions", "search", "text")
    inside = throughline("sessions", "search", "text", "--session", session_id)

    assert everywhere.stdout == f"{session_id} #1 user text\n"
    assert inside.stdout == "#1 user text\n"
    assert [asked["path"] for asked in world.service.searched] == ["/v1/search", f"/v1/sessions/{session_id}/search"]


def test_sessions_are_numbered_and_resumed_by_number_or_id(world: FakeWorld, throughline: Throughline) -> None:
    world.service.add_session(1, title="first", messages=2)
    second = world.service.add_session(2, title="second", messages=4)

    by_number = throughline("chat", typed="/sessions\n/resume 2\n/resume 1\n")
    by_id = throughline("chat", typed=f"/resume {second}\n")

    assert "4 messages in history (0 summarized)" in by_number.stdout
    assert "first (assistant)" in by_number.stdout
    assert "second (assistant)" in by_id.stdout


def test_new_leaves_the_session(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(1)
    world.service.scripts = [answer_of("x")]

    throughline("chat", "--session", session_id, typed="/new\nhello\n")

    assert len(world.service.sessions) == 2


def test_context_draws_the_bars(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(1)
    world.service.context = context_out(
        messages_since_summary=29, total_tokens=4_096, will_trigger=True, next_action="compact"
    )

    result = throughline("chat", "--session", session_id, typed="/context\n")

    assert "29 / 30" in result.stdout
    assert "50% ⚡" in result.stdout
    assert "older messages are shortened or summarized first" in result.stdout


def test_summarize_hands_the_focus_on(world: FakeWorld, throughline: Throughline) -> None:
    session_id = world.service.add_session(1, messages=8)

    result = throughline("chat", "--session", session_id, typed="/summarize the index design\n")

    assert world.service.instructions == ["the index design"]
    assert "4 of 8 messages are summarized" in result.stdout


@pytest.mark.parametrize("outcome", ["skipped", "failed"])
async def test_a_summary_that_is_not_adopted_is_told_without_numbers(outcome: str) -> None:
    session = session_out(message_count=8)
    done = SummarizeOut(outcome=outcome, detail="Not worth it.", tokens_before=345, tokens_after=345, session=session)
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
        (f"/resume {UUID(int=99)}", "no such session"),
    ],
)
def test_a_wrong_command_is_one_line_that_says_what_to_do(throughline: Throughline, typed: str, hint: str) -> None:
    result = throughline("chat", typed=f"{typed}\n")

    assert result.exit_code == 1
    assert hint in result.stderr
    assert "Traceback" not in result.output


def test_a_message_may_begin_with_a_slash_written_twice(world: FakeWorld, throughline: Throughline) -> None:
    world.service.scripts = [answer_of("ok")]

    throughline("chat", typed="//etc/hosts\n")

    assert world.service.received[0].content == "/etc/hosts"


def test_tools_and_compactions_are_told_beside_the_answer(world: FakeWorld, throughline: Throughline) -> None:
    adopted = CompactionFinished(
        cause="threshold",
        outcome="adopted",
        detail="",
        fired=[],
        tokens_before=7000,
        tokens_after=900,
        through_position=7,
    )
    less = {"outcome": "pruned", "fired": ["pruned", "pruned_aggressively"], "tokens_before": 900, "tokens_after": 700}
    call = ToolCallOut(id="1", name="calculator", arguments='{"x": 1}')
    world.service.scripts = [
        [
            started(),
            Event(EventType.COMPACTION_STARTED, CompactionStarted(cause="threshold", tokens=7000)),
            Event(EventType.COMPACTION_FINISHED, adopted),
            Event(EventType.COMPACTION_FINISHED, adopted.model_copy(update=less)),
            Event(EventType.TOOL_CALL, call),
            Event(EventType.TOOL_RESULT, ToolResult(id="1", name="calculator", content="2\n3", is_error=False)),
            Event("something.of_later", Shape()),
            delta("It is 2."),
            *ending("It is 2."),
        ]
    ]

    result = throughline("chat", typed="1+1\n")

    assert result.stdout == "It is 2.\n"
    assert "making room (7,000 tokens in the prompt)" in result.stderr
    assert "summary adopted: 7,000 → 900 tokens, messages up to #7 summarized" in result.stderr
    assert "less is shown (pruned, pruned aggressively): 900 → 700 tokens\n" in result.stderr
    assert 'calculator {"x": 1}' in result.stderr
    assert "calculator gave: 2 3" in result.stderr


def test_what_the_service_sends_cannot_command_the_terminal(world: FakeWorld, throughline: Throughline) -> None:
    world.service.scripts = [answer_of("\x1b[2J[red]plain[/red]\x07", "\x1b", "[31m")]

    result = throughline("chat", typed="x\n")

    assert result.stdout == "[red]plain[/red][31m\n"


def test_an_answer_whose_pieces_are_lost_is_shown_from_the_stored_message(
    world: FakeWorld, throughline: Throughline
) -> None:
    world.service.scripts = [[Event(EventType.RESET, Reset(attempt=2)), *ending("whole")]]

    assert throughline("chat", typed="x\n").stdout == "whole\n"


def test_a_failed_turn_is_an_error_with_the_services_own_words(world: FakeWorld, throughline: Throughline) -> None:
    failed = RunFailed(run=run_out(status="failed"), error=ErrorOut(type="model_quota", detail="No quota left."))
    world.service.scripts = [[started(), delta("Hal"), Event(EventType.RUN_FAILED, failed)]]

    result = throughline("chat", typed="x\nnever sent\n")

    assert result.exit_code == 1
    assert result.stdout == "Hal\n"
    assert "Error: No quota left." in result.stderr
    assert len(world.service.received) == 1


def test_an_unknown_agent_is_told_before_anything_is_typed(throughline: Throughline) -> None:
    result = throughline("chat", "nobody")

    assert result.exit_code == 1
    assert result.stderr == "Error: There is no agent 'nobody'. The service has: assistant, researcher.\n"


def test_an_agent_that_is_not_the_sessions_is_a_usage_error(world: FakeWorld, throughline: Throughline) -> None:
    result = throughline("chat", "researcher", "--session", world.service.add_session(1))

    assert result.exit_code == 2
    assert "belongs to the agent assistant" in result.stderr
