"""The one function that cleans text at every door: requests, tool results, model output, Slack."""

from collections.abc import Callable
from dataclasses import replace

from throughline.domain.message import Content, TextBlock

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD; all else stays as it is.

    PostgreSQL text cannot hold NUL, and neither UTF-8 nor JSON answers can hold a lone surrogate. A surrogate
    pair that a stream split and joined again becomes the character it stands for. Nothing is normalised.
    """
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_content(content: Content) -> Content:
    """Return `content` with every text in it cleaned."""
    return change_texts(content, clean_text)


def change_texts(content: Content, change: Callable[[str], str]) -> Content:
    """Return `content` with every text in it changed."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        replace(block, text=change(block.text)) if isinstance(block, TextBlock) else block for block in content
    )


def is_blank(text: str) -> bool:
    """Whether `text` holds nothing a reader could see: only white space and zero-width characters."""
    return not text.strip().strip("\u200b\u200c\u200d\u2060\ufeff").strip()
