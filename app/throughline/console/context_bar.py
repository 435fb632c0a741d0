"""The bar of a prompt: a picture of its parts in the window, and of the sizes above which it is made smaller."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from throughline.console.text_filters import grouped
from throughline.context.preview import Preview
from throughline.context.prompt_parts import PromptPartKind

RESERVE, FREE = "reserve", "free"
HEIGHT, ROW, GAP = 30, 16, 6
"""Pixels of the bar, of a line of labels below it, and between a line and what it names."""

LEAST_PERCENT = 0.1


@dataclass(frozen=True, slots=True)
class BarSlice:
    """A piece of the bar: its name, which chooses its colour, and its tokens."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class BarMark:
    """A size of the prompt that is marked below the bar."""

    name: str
    tokens: int


def slices_of(preview: Preview) -> tuple[BarSlice, ...]:
    """Return the pieces of a prompt's bar: its kinds of parts, what is free, and the reserve for the answer."""
    sizes = {kind: sum(part.tokens for part in preview.parts if part.kind is kind) for kind in PromptPartKind}
    reserve = preview.window - preview.budget_tokens
    shown = [BarSlice(kind.value, tokens) for kind, tokens in sizes.items() if tokens]
    free = preview.budget_tokens - sum(sizes.values())
    return (*shown, *([BarSlice(FREE, free)] if free > 0 else []), *([BarSlice(RESERVE, reserve)] if reserve else []))


def marks_of(preview: Preview) -> tuple[BarMark, ...]:
    """Return the sizes above which the prompt is made smaller, the smallest first."""
    pruned = zip(("prune", "prune_more"), preview.prune_tokens or (), strict=False)
    marks = [BarMark(name, tokens) for name, tokens in pruned]
    marks += [BarMark("threshold", preview.threshold_tokens), BarMark("budget", preview.budget_tokens)]
    return tuple(sorted(marks, key=lambda mark: mark.tokens))


def percent_of(tokens: int, window: int) -> str:
    """Return tokens in percent of the window, with one digit; only nothing is `0.0`."""
    share = 100 * tokens / window if window else 0.0
    return "< 0.1" if 0 < share < LEAST_PERCENT else f"{share:.1f}"


@dataclass(frozen=True, slots=True)
class BarLabels:
    """The words of a picture by name, its description for those who do not see it, and the page its slices lead to.

    With `address` '' they lead nowhere.
    """

    words: dict[str, str]
    description: str
    address: str = ""


def draw_bar(slices: Sequence[BarSlice], marks: Sequence[BarMark], labels: BarLabels) -> Markup:
    """Return the picture: the slices side by side on the whole width, and each mark with its label on its own line.

    With links it is a group: in an image, screen readers find none.
    """
    whole = max(sum(piece.tokens for piece in slices), *(mark.tokens for mark in marks), 1)
    height = HEIGHT + GAP + ROW * len(marks)
    role = "group" if labels.address else "img"
    return Markup('<svg class="bar" width="100%" height="{}" role="{}" aria-label="{}">{}{}</svg>').format(
        height, role, labels.description, _draw_slices(slices, whole, labels), _draw_marks(marks, whole, labels)
    )


def _draw_slices(slices: Sequence[BarSlice], whole: int, labels: BarLabels) -> Markup:
    drawn, start = [], 0
    for piece in slices:
        rect = Markup('<rect class="part {}" x="{}" width="{}" height="{}"><title>{}: {}</title></rect>').format(
            piece.name,
            _share(start, whole),
            _share(piece.tokens, whole),
            HEIGHT,
            labels.words[piece.name],
            grouped(piece.tokens),
        )
        drawn.append(_linked(rect, piece, labels))
        start += piece.tokens
    return Markup("").join(drawn)


def _linked(rect: Markup, piece: BarSlice, labels: BarLabels) -> Markup:
    """Return the piece as a link to its text. It is no stop of the keyboard, because the table has the same links."""
    if not labels.address or piece.name in {FREE, RESERVE}:
        return rect
    return Markup('<a href="{}#part-{}" tabindex="-1">{}</a>').format(labels.address, piece.name, rect)


def _draw_marks(marks: Sequence[BarMark], whole: int, labels: BarLabels) -> Markup:
    drawn = []
    for number, mark in enumerate(marks, start=1):
        at, end = _share(mark.tokens, whole), HEIGHT + ROW * number
        side = ("end", -GAP) if 2 * mark.tokens > whole else ("start", GAP)
        drawn.append(
            Markup(
                '<line class="mark" x1="{at}" x2="{at}" y1="0" y2="{end}"/>'
                '<text x="{at}" y="{end}" dx="{shift}" text-anchor="{anchor}">{label} {tokens}</text>'
            ).format(
                at=at,
                end=end,
                shift=side[1],
                anchor=side[0],
                label=labels.words[mark.name],
                tokens=grouped(mark.tokens),
            )
        )
    return Markup("").join(drawn)


def _share(tokens: int, whole: int) -> str:
    return f"{100 * tokens / whole:.3f}%"
