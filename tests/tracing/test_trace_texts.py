"""Texts in spans have a limit, and the newest messages win."""

import json

from throughline.domain.message import ImageBlock, Role, TextBlock
from throughline.domain.prompt import PromptMessage
from throughline.tracing.attributes import MOST_CHARACTERS, cut, input_messages, system_instructions


def test_the_newest_messages_of_a_long_prompt_are_kept() -> None:
    old, new = PromptMessage(Role.USER, "old " * MOST_CHARACTERS), PromptMessage(Role.USER, "new")
    older = PromptMessage(Role.USER, "older")

    said = json.loads(input_messages([older, old, new]))

    assert [message["parts"][0]["content"][:4] for message in said] == ["old ", "new"]
    assert len(input_messages([older, old, new])) < MOST_CHARACTERS + 1_000


def test_images_are_named_and_not_sent() -> None:
    content = (TextBlock("look"), ImageBlock("data:image/png;base64,AAAA"))

    assert "AAAA" not in input_messages([PromptMessage(Role.USER, content)])


def test_single_texts_are_cut() -> None:
    assert len(cut("a" * 2 * MOST_CHARACTERS)) == MOST_CHARACTERS
    assert len(system_instructions("a" * 2 * MOST_CHARACTERS)) < MOST_CHARACTERS + 100
