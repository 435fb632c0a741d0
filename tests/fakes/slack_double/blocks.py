"""The limits of Block Kit that messages here meet, from the pages below https://docs.slack.dev/reference/block-kit/."""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.slack_double.rules import Refused

MOST_BLOCKS, MOST_ELEMENTS = 50, 25
MOST_SECTION, MOST_MARKDOWN, MOST_LABEL, MOST_VALUE, MOST_ACTION_ID = 3_000, 12_000, 75, 2_000, 255
STYLES = {"primary", "danger"}
Block = Mapping[str, Any]  # Any: as JSON has it


def check_blocks(blocks: object) -> None:
    """Raise Refused for blocks that Slack would not show; None and [] are no blocks."""
    if not blocks:
        return
    _require(isinstance(blocks, list) and len(blocks) <= MOST_BLOCKS)
    assert isinstance(blocks, list)
    for block in blocks:
        check = CHECKS.get(block.get("type"))
        _require(check is not None)
        assert check is not None
        check(block)
    written = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    _require(written <= MOST_MARKDOWN)


def _section(block: Block) -> None:
    _text(block["text"], MOST_SECTION)


def _context(block: Block) -> None:
    _require(1 <= len(block["elements"]) <= 10)
    for element in block["elements"]:
        _text(element, MOST_SECTION)


def _markdown(block: Block) -> None:
    _require(bool(block["text"].strip()))


def _rich_text(block: Block) -> None:
    for element in block["elements"]:
        _require(element["type"] in {"rich_text_preformatted", "rich_text_section", "rich_text_quote"})
        for part in element["elements"]:
            _require(part["type"] == "text" and bool(part["text"]))


def _actions(block: Block) -> None:
    elements = block["elements"]
    _require(1 <= len(elements) <= MOST_ELEMENTS)
    _require(len({element["action_id"] for element in elements}) == len(elements))
    for button in elements:
        _require(button["type"] == "button" and button["text"]["type"] == "plain_text")
        _require(1 <= len(button["text"]["text"]) <= MOST_LABEL and len(button["value"]) <= MOST_VALUE)
        _require(len(button["action_id"]) <= MOST_ACTION_ID and button.get("style", "primary") in STYLES)


def _text(text: Mapping[str, Any], most: int) -> None:
    _require(text["type"] in {"mrkdwn", "plain_text"} and 1 <= len(text["text"]) <= most)


def _require(is_valid: object) -> None:
    if not is_valid:
        raise Refused("invalid_blocks")


CHECKS: dict[str, Callable[[Block], None]] = {
    "actions": _actions,
    "context": _context,
    "markdown": _markdown,
    "rich_text": _rich_text,
    "section": _section,
}
