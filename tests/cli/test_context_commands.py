from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.api_stage import PREVIEW
from fakes.command_stage import CommandStage
from fakes.conversations import Conversation, answer_message
from fakes.stage import open_stage
from fakes.wire_shapes import NOW, summary_out
from fakes.wire_shapes import session_context_out as context
from throughline.cli.context_views import draw_bar, draw_context
from throughline.cli.printable import moment
from throughline.context.explain_context import RestoreReport
from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.context.preview import Action, SegmentToSummarise
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.turn.context_requests import ContextRequests
from throughline.turn.summary.reread import SummaryRequest
from throughline.wire.context import (
    HistoryQuoted,
    MemoriesQuoted,
    RestoredOut,
    SessionContextOut,
    SummariserOut,
    SummaryFailureOut,
)
from throughline.wire.gauges import Gauge

MORE_VERSIONS = """
    with counted as (update sessions set summary_version = $2 where id = $1)
    insert into summary_versions (id, session_id, version, state, segment_ids, text, token_count, through_id,
        through_position, model)
    select gen_random_uuid(), session_id, n, state, segment_ids, text, token_count, through_id, through_position, model
    from summary_versions, generate_series(3, $2::integer) n where session_id = $1 and version = 1
"""


@pytest.fixture
def summary_requests() -> list[SummaryRequest]:
    """What summaries on demand were asked to look at."""
    return []


@pytest.fixture
async def dependencies(database: Database, summary_requests: list[SummaryRequest]) -> dict[str, object]:
    """Pins as the service sets them, and summaries on demand of all but four messages."""
    stage = await open_stage(database)
    requests = ContextRequests(stage.dependencies, database.sessions, database.pins, lambda _: nullcontext())

    async def summarize(owner_id: UserId, session_id: SessionId, request: SummaryRequest) -> CompactionResult:
        summary_requests.append(request)
        talk = Conversation(database, owner_id, await database.sessions.get(owner_id, session_id))
        return CompactionResult(CompactionOutcome.ADOPTED, await talk.adopt((await talk.messages())[-5]), "", 900, 400)

    return {"pin_message": requests.pin, "unpin_message": requests.unpin, "summarize_now": summarize}


@pytest.fixture
async def talk(service: CommandStage) -> Conversation:
    """A session of 40 messages with two versions of its summary and a third one ready."""
    talk = await service.talk(40)
    messages: tuple[Message, ...] = await talk.messages()
    await talk.adopt(messages[9], "- Ada moved.")
    await talk.adopt(messages[19], "- Ada moved.\n- Bob came.")
    await talk.prepare(messages[29])
    return talk


async def id_of(service: CommandStage, where: str) -> object:
    return (await service.sql(f"select id from summary_versions where {where}"))[0][0]


async def pinned(service: CommandStage) -> list[object]:
    """Return the positions of the messages that are pinned."""
    statement = "select position from message_pins join messages on id = message_id order by position"
    return [position for (position,) in await service.sql(statement)]


async def test_summarize_hands_the_request_on_and_tells_the_cost(
    service: CommandStage, summary_requests: list[SummaryRequest]
) -> None:
    talk = await service.talk(8)

    result = await service.run("chat", "--session", talk.session.id, typed="/summarize the index design\n")

    assert summary_requests == [SummaryRequest("the index design")]
    assert "4 of 8 messages are summarized" in result.stdout
    assert "#1-#40, 40 messages: about 2 calls of the summary model, 9,000 tokens read" in result.stderr
    assert "0 calls of the summary model" in result.stderr


@pytest.mark.parametrize("typed", ["/summarize", "/summarize from 1"])
async def test_the_cost_is_told_before_and_after_a_summary(service: CommandStage, typed: str) -> None:
    talk = await service.talk(8)

    told = (await service.run("chat", "--session", talk.session.id, typed=f"{typed}\n")).stderr.splitlines()

    assert told[0].startswith("· #1-#40, 40 messages: about 2 calls")
    assert told[1:] == ["· summarizing …", "· 0 calls of the summary model, 0 tokens read and 0 written, 0.0 seconds"]


async def test_a_session_keeps_what_its_summaries_have_to_keep(service: CommandStage) -> None:
    talk = await service.talk(2)
    typed = "/keep\n/keep who owns the deadline\n/keep nothing\n/summarize from 3 the price\n"

    result = await service.run("chat", "--session", talk.session.id, typed=typed)

    assert result.stdout.count("This session has no instructions for its summaries.") == 2
    assert "Every summary keeps: who owns the deadline" in result.stdout


async def test_the_first_summary_can_be_undone_by_the_number_0(service: CommandStage) -> None:
    talk = await service.talk(6)
    await talk.adopt((await talk.messages())[1], "first")

    service.api.pins.report = replace(service.api.pins.report, restored=RestoreReport(6, 0, 1_639))

    result = await service.run("chat", "--session", talk.session.id, typed="/restore 0\n")

    assert "The session has no summary now: none of 6 messages is summarized." in result.stdout
    ends = "until 1,639 tokens are said after #6 (now 0) or a summary is asked for."
    assert result.stdout.splitlines()[-1] == f"Going back to no summary holds {ends}"


async def test_a_restore_stays_without_automatic_summaries(service: CommandStage, talk: Conversation) -> None:
    service.api.pins.report = replace(service.api.pins.report, messages_threshold=None)

    result = await service.run("sessions", "restore", talk.session.id, 1)

    assert result.stdout.splitlines()[1:] == ["This stays until a summary is asked for."]


async def test_a_preview_is_asked_for_with_the_text_or_without(service: CommandStage, talk: Conversation) -> None:
    service.api.pins.plan = replace(
        PREVIEW,
        summarise=SegmentToSummarise(from_position=21, through_position=34),
        messages=(ShownMessage(35, Role.USER, MessageVariant.WHOLE, 9),),
    )

    result = await service.run("chat", "--session", talk.session.id, typed="/preview\n/preview What next?\n")

    assert service.api.pins.previewed == [None, "What next?"]
    assert "14 messages (#21-#34) are summarized" in result.stdout
    assert "#35         whole" in result.stdout


async def test_summaries_are_listed_and_one_is_gone_back_to(service: CommandStage, talk: Conversation) -> None:
    result = await service.run("chat", "--session", talk.session.id, typed="/summaries\n/restore 1\n")

    assert "v2   adopted    #1-#20" in result.stdout
    assert "–    prepared   #1-#30" in result.stdout
    assert (await talk.reload()).summary_through_position == 10
    assert (
        "Restored version 1: 10 of 40 messages are summarized. The restored summary is a new version." in result.stdout
    )


async def test_one_version_is_read_and_two_are_compared(service: CommandStage, talk: Conversation) -> None:
    typed = "/summaries 1\n/summaries v1 2\n/summaries 7\n"

    result = await service.run("chat", "--session", talk.session.id, typed=typed)
    outside = await service.run("sessions", "summaries", talk.session.id, 1, 2)

    assert "- Ada moved." in result.stdout
    assert "+ - Bob came." in result.stdout
    assert "There is no version 7 of the summary" in result.stdout + result.stderr
    assert "+ - Bob came." in outside.stdout


async def test_a_prepared_summary_is_read_and_compared_by_that_name(service: CommandStage, talk: Conversation) -> None:
    typed = "/summaries prepared\n/summaries 2 prepared\n"
    result = await service.run("chat", "--session", talk.session.id, typed=typed)
    await service.run("sessions", "restore", talk.session.id, 1)
    without = await service.run("sessions", "summaries", talk.session.id, "prepared")

    assert "–    prepared   #1-#30" in result.stdout
    assert "version 2 (#1-#20) → the prepared version (#1-#30)" in result.stdout
    assert "No summary is prepared now" in without.stderr


async def test_going_back_to_the_version_in_use_says_that_nothing_has_changed(
    service: CommandStage, talk: Conversation
) -> None:
    result = await service.run("chat", "--session", talk.session.id, typed="/restore 2\n")

    assert "Version 2 is in use already; nothing has changed." in result.stdout


async def test_a_version_on_a_later_page_is_found(service: CommandStage, talk: Conversation) -> None:
    await service.sql(MORE_VERSIONS, talk.session.id, 250)

    listed = await service.run("sessions", "summaries", talk.session.id)
    restored = await service.run("sessions", "restore", talk.session.id, 1)

    assert len(listed.stdout.splitlines()) == 1 + 250
    assert restored.stdout.startswith("Restored version 1:")
    assert (await talk.reload()).summary_through_position == 10


async def test_the_same_can_be_done_outside_a_chat(service: CommandStage, talk: Conversation) -> None:
    service.api.pins.plan = replace(PREVIEW, action=Action.NONE, cause=None, summarise=None, messages=())

    context = await service.run("sessions", "context", talk.session.id, "--preview")
    summaries = await service.run("sessions", "summaries", talk.session.id)
    restored = await service.run("sessions", "restore", talk.session.id, await id_of(service, "version = 1"))

    assert "Context of assistant" in context.stdout
    assert "The next call:" in context.stdout
    assert summaries.stdout.startswith("–    prepared")
    assert restored.stdout.startswith("Restored version 1:")
    assert (await talk.reload()).summary_through_position == 10


async def test_what_the_service_refuses_to_restore_is_told_in_its_words(
    service: CommandStage, talk: Conversation
) -> None:
    prepared = await id_of(service, "state = 'prepared'")

    result = await service.run("sessions", "restore", talk.session.id, prepared)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: The summary {prepared} is prepared and was never in use: ")


async def test_a_pin_is_set_by_position_shown_in_the_history_and_taken_off(
    service: CommandStage, talk: Conversation
) -> None:
    typed = "/pin 39\n/history 2\n/unpin #39\n/history 1\n/pin 40\n"
    result = await service.run("chat", "--session", talk.session.id, typed=typed)

    assert result.stdout.splitlines()[1:] == [
        "Pinned #39: every prompt shows it word for word.",
        "#39 📌 user text 39",
        "#40 assistant text 40",
        "#39 is no longer pinned.",
        "#40 assistant text 40",
        "Pinned #40: every prompt shows it word for word.",
    ]
    assert await pinned(service) == [40]


async def test_a_tools_answer_is_pinned_with_its_call(service: CommandStage) -> None:
    talk = await service.talk(4)
    called = answer_message("", tool_calls=(ToolCall("1", "calculator", "{}"),))
    await talk.store(called, NewMessage(Role.TOOL, "2", Source.CLI, tool_call_id="1", name="calculator"))

    result = await service.run("chat", "--session", talk.session.id, typed="/pin 6\n")

    assert "Pinned #5-#6, a tool call and its results: every prompt shows it" in result.stdout
    assert await pinned(service) == [5, 6]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/pin", "Write /pin with a message's number in /history."),
        ("/pin last", "not 'last'"),
        ("/pin 0", "not '0'"),
        ("/pin 99999999999999", "not '99999999999999'"),
        ("/unpin 41", "There is no message #41."),
        ("/restore", "Give the number or the id of a version"),
        ("/restore 9", "There is no version 9"),
    ],
)
async def test_a_wrong_number_is_one_line_that_says_what_to_do(
    service: CommandStage, talk: Conversation, typed: str, hint: str
) -> None:
    result = await service.run("chat", "--session", talk.session.id, typed=f"{typed}\n")

    assert result.exit_code == 1
    assert hint in result.stderr


@pytest.mark.parametrize("typed", ["/preview", "/summaries", "/restore 1", "/pin 1", "/unpin 1", "/context"])
async def test_before_the_first_message_there_is_nothing_to_look_at(service: CommandStage, typed: str) -> None:
    result = await service.run("chat", typed=f"{typed}\n")

    assert "the session begins with the first one" in result.stderr


COUNTS = st.integers(0, 10**12)


def test_the_picture_shows_both_bars_and_the_window() -> None:
    lines = draw_context(context(), width=80).plain.splitlines()

    assert "12 / 30" in lines[1]
    assert "40%" in lines[1]
    assert "2,500 / 128,000" in lines[2]
    assert "3,000 / 8,192" in lines[3]
    assert "│" in lines[3]
    assert "threshold 6,144 (75%)" in lines[4]
    assert "⚡" not in "".join(lines)


def test_what_never_triggers_by_itself_is_off() -> None:
    lines = draw_context(context(messages_threshold=None, tokens_threshold=None), width=80).plain.splitlines()

    assert [line.split("]")[1].split() for line in lines[1:3]] == [["–", "12", "/", "off"], ["–", "2,500", "/", "off"]]


def test_on_a_narrow_screen_the_limits_go_and_the_shares_and_the_lightning_stay() -> None:
    drawn = context(
        will_trigger=True, next_action="compact", next_trigger="window", total_tokens=9_000, tokens_since_summary=99_000
    )

    lines = draw_context(drawn, width=40).plain.splitlines()

    bars = [line for line in lines if "]" in line]
    assert [line.split("]")[1].split() for line in bars] == [["40%", "12"], ["77%", "99,000"], ["110%", "9,000", "⚡"]]


def test_on_a_narrow_screen_every_word_around_the_bars_is_still_told() -> None:
    summary = summary_out(messages_summarized=25, token_count=812, through_position=25, model="openai:gpt-4o-mini")
    drawn = context(summary=summary, summary_count=3, estimated_response_tokens=700)

    text = " ".join(draw_context(drawn, width=40).plain.split())

    assert "…" not in text
    for words in ("on offline · window 8,192 tokens", "answer about 700", "messages 3,000", "by openai:gpt-4o-mini"):
        assert words in text


def test_the_lightning_says_what_the_next_message_triggers() -> None:
    text = draw_context(
        context(will_trigger=True, next_action="compact", next_trigger="window", total_tokens=6_200), width=80
    ).plain

    assert text.count("⚡") == 2
    assert "6,200 / 8,192 ⚡" in text
    assert "older messages are shortened or summarized first" in " ".join(text.split())


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("open", "The summary model small failed several times in a row; it is not called for another 42 seconds."),
        ("half_open", "The summary model small failed several times in a row; the next summary calls it again."),
    ],
)
def test_a_summary_model_that_failed_is_told_and_when_it_is_tried_again(state: str, told: str) -> None:
    resting = SummariserOut(model="small", state=state, retry_after_seconds=42 if state == "open" else 0)

    assert told in " ".join(draw_context(context(summariser=resting), width=80).plain.split())
    assert "summary model" not in draw_context(context(), width=80).plain


def test_the_lightning_stands_on_the_gauge_that_fires() -> None:
    due = context(will_trigger=True, next_action="prepare", next_trigger="messages", messages_since_summary=28)

    text = draw_context(due, width=80).plain

    assert "A summary is due: it is prepared in the background" in text
    assert "28 / 30 ⚡" in text
    assert text.count("⚡") == 1


@pytest.mark.parametrize("action", ["none", "prepare"])
def test_a_summary_that_is_ready_is_told_with_how_far_it_reaches(action: str) -> None:
    ready = summary_out(messages_summarized=25, token_count=812, through_position=25)

    due = context(will_trigger=action != "none", next_action=action, prepared=ready, counted_from_position=25)

    text = " ".join(draw_context(due, width=80).plain.split())

    assert "N messages after #25 [" in text
    assert "No summary is in use yet." in text
    assert f"Summary ready: #1-#25, {moment(NOW)} by m; it is used at 75% of the window." in text
    assert "N and K count the messages after #25, where the summary that is ready ends." in text
    assert "⚡" not in text


@pytest.mark.parametrize(
    ("changes", "use"),
    [
        ({"adopt": "immediately"}, "it is used at N, at K or at 75% of the window."),
        ({"messages_threshold": None}, "no turn uses it, because the agent's summaries are not automatic."),
    ],
)
def test_when_a_summary_that_is_ready_is_used_depends_on_the_agent(changes: dict[str, object], use: str) -> None:
    assert use in " ".join(draw_context(context(prepared=summary_out(), **changes), width=80).plain.split())


def test_a_limit_of_tokens_that_the_window_never_holds_has_no_gauge() -> None:
    small = context(context_window=4_000, can_reach_tokens=False, counted_from_position=100)

    text = draw_context(small, width=80).plain

    assert "128,000" not in "".join(line for line in text.splitlines() if "[" in line)
    assert "K is off: this window never holds its 128,000 tokens." in text
    assert "N counts the messages after #100." in text
    assert "K tokens" in draw_context(small.model_copy(update={"tokens_since_summary": 130_000}), width=80).plain


def test_a_restored_summary_stays_and_what_ends_that_is_told() -> None:
    summary = summary_out(through_position=25)
    restored = RestoredOut(at_position=100, tokens_since=300, tokens_needed=1_639)
    next_step = {"will_trigger": True, "next_action": "compact", "next_trigger": "window"}
    over = context(summary=summary, restored=restored, counted_from_position=100, total_tokens=9_000, **next_step)

    text = " ".join(draw_context(over, width=80).plain.split())

    ends = "until 1,639 tokens are said after #100 (now 300) or a summary is asked for."
    assert f"The summary in use was restored and stays {ends}" in text
    assert "N and K count the messages after #100, the newest one when you went back." in text
    assert "what does not fit is shortened or left out of the prompt" in text
    assert "summarized first" not in text
    none, soon = over.model_copy(update={"summary": None}), over.model_copy(update={"adopt": "immediately"})
    assert f"Going back to no summary holds {ends}" in " ".join(draw_context(none, width=80).plain.split())
    assert f"until N or K is reached, {ends[6:]}" in " ".join(draw_context(soon, width=80).plain.split())


def test_more_than_the_window_is_explained() -> None:
    whole = draw_context(context(total_tokens=8_192), width=80).plain
    over = draw_context(context(total_tokens=9_000), width=80).plain

    assert "over 100%" not in whole
    assert "over 100%: before the next message, the prompt is reduced until it fits" in over


def test_summaries_adopted_and_prepared_are_named() -> None:
    adopted = summary_out(messages_summarized=25, token_count=812, through_position=25, model="m")
    shape = context(summary=adopted, summary_count=3, prepared=adopted, summary_tokens=900, counted_from_position=25)
    text = draw_context(shape, width=80).plain

    assert f"Summary in use: #1-#25, {moment(NOW)} by m." in text
    assert "summary with delimiters 900" in text
    assert "Summary ready: #1-#25, " in text


def test_what_the_last_turn_quoted_is_told_with_its_scores() -> None:
    quoted = HistoryQuoted(positions=[21, 4], scores=[1.0, 0.52], tokens=1_204)

    memories = MemoriesQuoted(memory_ids=["a", "b"], tokens=64)

    text = draw_context(context(quoted=quoted, quoted_memories=memories), width=80).plain

    assert "Quoted in the last turn: #21 (100%), #4 (52%) in 1,204 tokens" in text
    assert "Quoted in the last turn: 2 of your memories in 64 tokens" in text
    assert "Quoted" not in draw_context(context(), width=80).plain


def test_a_session_that_went_back_to_no_summary_shows_from_where_n_and_k_count() -> None:
    text = draw_context(context(summary_count=3, messages_since_summary=0, counted_from_position=100), width=80).plain

    assert (
        "No summary is in use.\n  N and K count the messages after #100.\n  /summaries lists the earlier versions."
        in text
    )
    assert "count the messages" not in draw_context(context(), width=80).plain


@given(
    st.builds(
        context,
        total_tokens=COUNTS,
        context_window=COUNTS,
        threshold_tokens=COUNTS,
        messages_since_summary=COUNTS,
        messages_threshold=st.none() | COUNTS,
        tokens_since_summary=COUNTS,
        tokens_threshold=st.none() | COUNTS,
        will_trigger=st.booleans(),
        next_action=st.sampled_from(["none", "prepare", "compact", "something else that is rather long"]),
        prepared=st.none() | st.builds(summary_out, messages_summarized=COUNTS, token_count=COUNTS),
        model=st.text(max_size=200),
    ),
    st.sampled_from([30, 40, 60, 80, 110]),
)
def test_no_line_is_wider_than_the_screen_whatever_the_numbers(drawn: SessionContextOut, width: int) -> None:
    assert max(cell_len(line) for line in draw_context(drawn, width=width).plain.split("\n")) <= width


@pytest.mark.parametrize(("used", "filled"), [(0, 0), (1, 1), (500, 5), (999, 9), (1_000, 10), (5_000, 10), (-3, 0)])
def test_a_bar_is_empty_only_at_zero_and_full_only_from_the_limit_on(used: int, filled: int) -> None:
    assert draw_bar(Gauge("x", used, 1_000), inner=10).plain == "[" + "█" * filled + "░" * (10 - filled) + "]"


def test_a_bar_without_a_limit_is_empty() -> None:
    assert draw_bar(Gauge("x", 7, None), inner=10).plain == "[" + "░" * 10 + "]"


def test_the_mark_stands_at_its_share_of_the_bar() -> None:
    assert draw_bar(Gauge("x", 0, 100, mark=80), inner=10).plain == "[░░░░░░░░│░]"


def test_why_the_last_summary_failed_is_told() -> None:
    failure = SummaryFailureOut(reason="It is no summary: a refusal.", failed_at=NOW)

    text = " ".join(draw_context(context(summary_failure=failure), width=80).plain.split())

    assert f"The last summary failed on {moment(NOW)}: It is no summary: a refusal." in text
