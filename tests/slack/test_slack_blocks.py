"""What `/agent` draws and names."""

from dataclasses import replace

from fakes.scripted_turns import REPORT
from throughline.context.explain_context import FiringGauge, NextAction
from throughline.slack.blocks import CELLS, Gauge, draw, named, show_context


def test_bars_are_never_empty_above_nothing_and_full_only_at_the_limit() -> None:
    assert draw(Gauge("N", 0, 30)) == "N          [" + "░" * CELLS + "] 0 / 30 0%"
    assert draw(Gauge("N", 1, 1_000)).count("█") == 1
    assert draw(Gauge("N", 999, 1_000)).count("█") == CELLS - 1
    assert draw(Gauge("N", 1_000, 1_000)).count("█") == CELLS
    assert draw(Gauge("K", 5, None)).endswith("5 / off")
    assert "│" in draw(Gauge("window", 100, 1_000, mark=800, is_firing=True))


def test_what_happens_next_is_told() -> None:
    firing = show_context(replace(REPORT, next_action=NextAction.COMPACT, next_trigger=FiringGauge.WINDOW), "")

    assert "⚡" in str(firing.blocks)
    assert "will trigger" in str(firing.blocks)
    assert "triggers nothing" in str(show_context(REPORT, "").blocks)


def test_a_conversation_is_named_by_its_first_words_and_they_neither_ring_nor_format() -> None:
    assert named("Plans for the week") == '"Plans for the week"'
    assert named("<!channel> & `rm`") == "\"&lt;!channel&gt; &amp; 'rm'\""
    assert named("two\nlines \x00") == '"two lines \ufffd"'
    assert len(named("word " * 20)) == len('""') + 40
    assert named("") == "a conversation without a title"
