import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.wire_shapes import NOW, summary_out
from fakes.wire_shapes import session_context_out as context
from throughline.cli.context_gauges import Gauge, draw_bar, draw_context, percent
from throughline.cli.printable import moment
from throughline.wire.context import HistoryQuoted, SessionContextOut, SummariserOut, SummaryFailureOut

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

    text = draw_context(context(will_trigger=action != "none", next_action=action, prepared=ready), width=80).plain

    assert "A summary is ready (through #25); it is used when space is needed." in text
    assert "⚡" not in text


def test_more_than_the_window_is_explained() -> None:
    whole = draw_context(context(total_tokens=8_192), width=80).plain
    over = draw_context(context(total_tokens=9_000), width=80).plain

    assert "over 100%" not in whole
    assert "over 100%: before the next message, the prompt is reduced until it fits" in over


def test_summaries_adopted_and_prepared_are_named() -> None:
    adopted = summary_out(messages_summarized=25, token_count=812, through_position=25, model="m")
    shape = context(summary=adopted, summary_count=3, prepared=adopted, summary_tokens=900, counted_from_position=25)
    text = draw_context(shape, width=80).plain

    assert f"Summary: 25 messages (up to #25) in 812 tokens, {moment(NOW)} by m" in text
    assert "summary with delimiters 900" in text
    assert "Prepared: 25 messages" in text
    assert "behind #" not in text


def test_what_the_last_turn_quoted_is_told_with_its_scores() -> None:
    quoted = HistoryQuoted(positions=[21, 4], scores=[1.0, 0.52], tokens=1_204)

    text = draw_context(context(quoted=quoted), width=80).plain

    assert "Quoted in the last turn: #21 (100%), #4 (52%) in 1,204 tokens" in text
    assert "Quoted" not in draw_context(context(), width=80).plain


def test_a_session_that_went_back_to_no_summary_shows_from_where_n_and_k_count() -> None:
    text = draw_context(context(summary_count=3, messages_since_summary=0, counted_from_position=100), width=80).plain

    assert "No summary is in use; /summaries lists the versions." in text
    assert "N and K count the messages after #100." in text
    assert "No summary yet." not in text
    assert "behind #" not in draw_context(context(), width=80).plain


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


@pytest.mark.parametrize(
    ("used", "limit", "shown"),
    [
        (0, 10, "0%"),
        (62, 128_000, "<1%"),
        (2, 1000, "<1%"),
        (999, 1000, "99%"),
        (1000, 1000, "100%"),
        (15, 10, "150%"),
        (10**9, 1, ">999%"),
        (5, 0, "–"),
        (5, None, "–"),
    ],
)
def test_percentages_agree_with_the_bar_and_are_told_beyond_a_hundred(used: int, limit: int | None, shown: str) -> None:
    assert percent(used, limit) == shown


def test_why_the_last_summary_failed_is_told() -> None:
    failure = SummaryFailureOut(reason="It is no summary: a refusal.", failed_at=NOW)

    text = " ".join(draw_context(context(summary_failure=failure), width=80).plain.split())

    assert f"The last summary failed on {moment(NOW)}: It is no summary: a refusal." in text
