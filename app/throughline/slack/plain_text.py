"""Conversion of Slack messages to plain text: mentions, links and entities are resolved.

The markup is that of https://docs.slack.dev/messaging/formatting-message-text/#advanced .
"""

import re
from functools import cache

from throughline.domain.text import clean_text, is_blank

MARKUP = re.compile(r"<([^<>\n]*)>")
WITHOUT_TEXT = "(a message without text)"


def readable(text: str, *, bot_user_id: str) -> str:
    """Return a message as plain text, without the mention of the bot itself."""
    without_call = _call_of(bot_user_id).sub("", text)
    plain = MARKUP.sub(_undone, without_call)
    return clean_text(plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip())


def with_files(text: str, names: tuple[str, ...]) -> str:
    """Return the text with the names of attached files. The files themselves are not read.

    A blank text without files becomes WITHOUT_TEXT.
    """
    lines = [text] if not is_blank(text) else []
    lines += [f"[file: {clean_text(name)}]" for name in names]
    return "\n".join(lines) or WITHOUT_TEXT


def calls(text: str, bot_user_id: str) -> bool:
    """Return whether the text mentions the bot."""
    return f"<@{bot_user_id}>" in text or f"<@{bot_user_id}|" in text


@cache
def _call_of(bot_user_id: str) -> re.Pattern[str]:
    return re.compile(rf"<@{re.escape(bot_user_id)}(\|[^<>]*+)?>[:,]?\s?")


def _undone(found: re.Match[str]) -> str:
    inside, _, label = found[1].partition("|")
    match inside[:1]:
        case "@" | "#" as sign:
            return f"{sign}{label or inside[1:]}"
        case "!":
            return f"@{label.removeprefix('@') or inside[1:].partition('^')[0]}"
        case _:
            address = inside.removeprefix("mailto:")
            return address if not label or label == address else f"{label} ({inside})"
