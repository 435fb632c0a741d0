"""Cleaning of incoming text: requests, tool results, model output and Slack messages all go through `clean_text`."""

from collections.abc import Callable
from dataclasses import replace

from throughline.domain.message import Content, TextBlock

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD, otherwise unchanged.

    PostgreSQL text cannot hold NUL, and neither UTF-8 nor JSON can hold a lone surrogate. A surrogate pair that a
    stream split is joined to the character it encodes. Text is not normalised.
    """
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_content(content: Content) -> Content:
    """Return `content` with each of its texts cleaned."""
    return change_texts(content, clean_text)


def change_texts(content: Content, change: Callable[[str], str]) -> Content:
    """Return `content` with `change` applied to each of its texts."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        replace(block, text=change(block.text)) if isinstance(block, TextBlock) else block for block in content
    )


def is_blank(text: str) -> bool:
    """Whether `text` has no visible characters: only whitespace and zero-width characters."""
    return not text.strip().strip("\u200b\u200c\u200d\u2060\ufeff").strip()
