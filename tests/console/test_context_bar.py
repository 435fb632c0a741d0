"""The bar of a prompt: its slices add up to the window, or to an over-full prompt."""

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from fakes.api_stage import PREVIEW
from throughline.console.context_bar import BarLabels, BarMark, BarSlice, draw_bar, marks_of, percent_of, slices_of
from throughline.console.context_words import MARKS, PARTS
from throughline.context.preview import Preview
from throughline.context.prompt_parts import PromptPart, PromptPartKind

LABELS = BarLabels({**PARTS, **MARKS}, "The prompt", "sessions/1/context")


def preview(**tokens: int) -> Preview:
    parts = tuple(PromptPart(PromptPartKind(kind), count) for kind, count in tokens.items())
    return replace(PREVIEW, tokens=sum(tokens.values()), parts=parts, prune_tokens=(5_734, 5_836))


def widths(bar: Markup) -> list[float]:
    return [float(width) for width in re.findall(r'width="([\d.]+)%" height', bar.partition(">")[2])]


def test_the_slices_add_up_to_the_window() -> None:
    slices = slices_of(preview(system=100, summary=900, whole=2_000, next=10))

    assert [piece.name for piece in slices] == ["system", "summary", "whole", "next", "free", "reserve"]
    assert sum(piece.tokens for piece in slices) == PREVIEW.window
    assert sum(widths(draw_bar(slices, (), LABELS))) == pytest.approx(100, abs=0.01)


def test_parts_of_one_kind_are_one_slice() -> None:
    parts = (
        PromptPart(PromptPartKind.WHOLE, 10),
        PromptPart(PromptPartKind.PINNED, 5),
        PromptPart(PromptPartKind.WHOLE, 20),
    )

    assert slices_of(replace(PREVIEW, parts=parts))[:2] == (BarSlice("pinned", 5), BarSlice("whole", 30))


def test_a_prompt_over_the_budget_leaves_nothing_free_and_stays_in_the_picture() -> None:
    over_full = preview(system=100, whole=9_900)
    slices, marks = slices_of(over_full), marks_of(over_full)

    bar = draw_bar(slices, marks, LABELS)

    assert [piece.name for piece in slices] == ["system", "whole", "reserve"]
    assert sum(widths(bar)) == pytest.approx(100, abs=0.01)
    assert all(0 <= float(at) <= 100 for at in re.findall(r'x1="([\d.]+)%"', bar))


def test_sizes_of_zero_are_left_out_and_an_empty_picture_can_be_drawn() -> None:
    assert slices_of(replace(preview(tools=0), budget_tokens=8_192)) == (BarSlice("free", 8_192),)
    assert widths(draw_bar((), (), LABELS)) == []
    assert widths(draw_bar((BarSlice("free", 0),), (BarMark("budget", 0),), LABELS)) == [0.0]
    assert [percent_of(*sizes) for sizes in ((5, 0), (0, 9), (1, 9_000), (3, 9))] == ["0.0", "0.0", "< 0.1", "33.3"]


def test_marks_stand_in_the_order_of_their_sizes_each_with_its_label() -> None:
    marks = marks_of(preview(system=100))

    bar = draw_bar(slices_of(preview(system=100)), marks, LABELS)

    assert [mark.name for mark in marks] == ["prune", "prune_more", "threshold", "budget"]
    assert [mark.tokens for mark in marks] == sorted(mark.tokens for mark in marks)
    assert all(f">{MARKS[mark.name]} " in bar for mark in marks)


def test_slices_lead_to_their_text_and_labels_are_escaped() -> None:
    labels = replace(LABELS, words={"system": "<b>", "free": "free"}, description='"><script>')

    bar = draw_bar((BarSlice("system", 1), BarSlice("free", 1)), (), labels)
    unlinked = draw_bar((BarSlice("system", 1),), (), replace(labels, address=""))

    assert re.findall(r'href="([^"]+)"', bar) == ["sessions/1/context#part-system"]
    assert "<script>" not in bar
    assert "<b>" not in bar
    assert "<a " not in unlinked
    assert [re.findall(r'role="(\w+)"', each) for each in (bar, unlinked)] == [["group"], ["img"]]
