"""Tool outputs that are shown in a prompt: cut where they are too long, the same object where they are not."""

from throughline.context.view.shrink_message import cap_output
from throughline.domain.message import ImageBlock, TextBlock

SHORT, LONG = TextBlock("short"), TextBlock("long " * 1_000)
IMAGE = ImageBlock("https://example.org/a.png")


def test_blocks_that_are_short_enough_are_returned_as_they_are() -> None:
    blocks = (SHORT, IMAGE)

    assert cap_output(blocks, 2_000, 1) is blocks


def test_of_several_blocks_only_the_long_ones_are_cut() -> None:
    capped = cap_output((SHORT, IMAGE, LONG), 2_000, 7)

    assert capped[:2] == (SHORT, IMAGE)
    cut = capped[2]
    assert isinstance(cut, TextBlock)
    assert len(cut.text) < len(LONG.text)
    assert "of message #7" in cut.text
