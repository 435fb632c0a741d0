import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.wire_shapes import preview_out as preview
from throughline.cli.context_views import MOST_ROWS, draw_preview
from throughline.wire.context import PreviewedMessage, PreviewOut, SegmentToSummarise

COUNTS = st.integers(0, 10**9)
WIDTHS = st.sampled_from([30, 40, 60, 80, 110])


def shown(position: int, form: str, reason: str, *, tokens: int = 0, pinned: bool = False) -> PreviewedMessage:
    role = "tool" if form == "pruned" else "user"
    return PreviewedMessage(position=position, role=role, form=form, reason=reason, tokens=tokens, pinned=pinned)


def segment(first: int, last: int) -> SegmentToSummarise:
    return SegmentToSummarise(from_position=first, through_position=last, message_count=last - first + 1)


def whole(position: int, tokens: int = 10) -> PreviewedMessage:
    return shown(position, "whole", "shown as stored", tokens=tokens)


def pruned(position: int) -> PreviewedMessage:
    return shown(position, "pruned", "an old tool output, shown as a stub", tokens=30)


def test_messages_in_a_row_that_are_shown_alike_are_one_line() -> None:
    drawn = draw_preview(preview(*map(whole, range(5, 11)), pruned(11), whole(12, 7), budget_tokens=6_144), width=80)

    assert drawn.plain.split("\n") == [
        "The next call: 5,900 of 8,192 tokens (72%)",
        "  threshold 5,836 · budget 6,144",
        "  Nothing is changed before it.",
        "  #5-#10      6× whole           60 tokens",
        "  #11            pruned          30 tokens  an old tool output, shown as a stub",
        "  #12            whole            7 tokens",
    ]


def test_a_pin_among_others_has_a_line_of_its_own() -> None:
    pinned = shown(2, "whole", "pinned: always shown", tokens=9, pinned=True)

    lines = draw_preview(preview(pinned, whole(3), whole(4), summarised_through=2), width=80).plain.split("\n")

    assert lines[3] == "  #1-#2 are in the summary"
    assert lines[4].endswith("pinned: always shown")


def test_what_is_not_shown_takes_no_tokens() -> None:
    hidden = shown(1, "trimmed", "left out to make room")

    assert "tokens" not in draw_preview(preview(hidden), width=80).plain.split("\n")[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"action": "prune", "fired": ("pruned", "pruned_aggressively")},
            "⚡ Old tool outputs are shown as stubs. Stages: pruned, pruned aggressively.",
        ),
        (
            {"action": "prune", "fired": ("pruned", "history_truncated")},
            "⚡ Older messages are left out or shortened. Stages: pruned, history truncated.",
        ),
        (
            {"action": "prune", "fired": ("unimportant_left_out",)},
            "⚡ Older messages are left out or shortened. Stages: unimportant left out.",
        ),
        (
            {"action": "adopt", "cause": "threshold"},
            "the prepared summary replaces older messages, because the prompt is above the threshold.",
        ),
        (
            {
                "action": "compact",
                "cause": "messages",
                "summarise": segment(3, 26),
            },
            "24 messages (#3-#26) are summarized, because there are enough new messages (max_messages_before_summary).",
        ),
        (
            {
                "action": "compact",
                "summarise": segment(3, 3),
            },
            "⚡ Before the model is called, 1 message (#3) is summarized.",
        ),
        ({"action": "compact"}, "⚡ Before the model is called, older messages are summarized."),
        ({"action": "fit"}, "⚡ Messages are shortened or left out until the prompt fits."),
        (
            {"action": "fit", "cause": "of_later"},
            "⚡ Messages are shortened or left out until the prompt fits, because of_later.",
        ),
        ({"action": "of_later"}, "⚡ of_later."),
        (
            {"floor_too_high": True, "action": "compact"},
            "What always stays (system prompt, tools, summary, pins, newest messages) leaves too little space.",
        ),
    ],
)
def test_what_happens_first_is_told_in_a_sentence(changes: dict[str, object], words: str) -> None:
    assert words in " ".join(draw_preview(preview(**changes), width=200).plain.split())


def test_what_always_stays_is_no_news_while_nothing_happens() -> None:
    assert "too little room" not in draw_preview(preview(floor_too_high=True), width=200).plain


@pytest.mark.parametrize(
    ("action", "head"),
    [("compact", "Before the summary: 5,900 of"), ("adopt", "The next call: 5,900 of"), ("fit", "The next call: 5,9")],
)
def test_the_head_says_what_the_size_is_of(action: str, head: str) -> None:
    assert draw_preview(preview(action=action), width=80).plain.startswith(head)


def test_on_a_narrow_screen_the_head_is_wrapped() -> None:
    drawn = draw_preview(preview(action="compact", budget_tokens=6_144), width=40).plain.split("\n")

    head = " ".join(" ".join(drawn[:4]).split())
    assert head.startswith("Before the summary: 5,900 of 8,192 tokens (72%) threshold 5,836 · budget 6,144")


def test_a_long_plan_is_cut_to_a_screen_at_its_old_end() -> None:
    messages = [whole(n) if n % 2 else pruned(n) for n in range(1, 201)]

    lines = draw_preview(preview(*messages), width=80).plain.split("\n")

    assert len(lines) == 3 + 1 + MOST_ROWS
    assert lines[3] == f"  … {200 - MOST_ROWS} older messages up to #{200 - MOST_ROWS}"
    assert lines[-1].startswith("  #200")


@given(
    st.builds(
        preview,
        action=st.sampled_from(["none", "prune", "adopt", "compact", "fit", "x" * 200]),
        tokens=COUNTS,
        window=COUNTS,
        cause=st.none() | st.text(max_size=60),
        fired=st.lists(st.text(max_size=60), max_size=6),
        threshold_tokens=COUNTS,
        budget_tokens=COUNTS,
        floor_too_high=st.booleans(),
        summarised_through=COUNTS,
        messages=st.lists(
            st.builds(shown, COUNTS, st.text(max_size=30), st.text(max_size=99), tokens=COUNTS), max_size=30
        ),
    ),
    WIDTHS,
)
def test_no_line_of_a_plan_is_wider_than_the_screen(drawn: PreviewOut, width: int) -> None:
    assert max(cell_len(line) for line in draw_preview(drawn, width=width).plain.split("\n")) <= width
