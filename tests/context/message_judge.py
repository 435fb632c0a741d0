"""Judges one message of a prompt: whether it shows what is stored, and in the variant that a preview names."""

from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.domain.message import Content, Message, NewMessage, Role, TextBlock, is_blank, text_of
from throughline.domain.prompt import PromptMessage


def begins_alike(shown: Content, content: Content) -> bool:
    """The same text, or its beginning, or where there is hardly any room a mark in its place."""
    first = next((text for text in texts(content) if not is_blank(text)), "")
    return first.strip()[:3] in text_of(shown) or "left out" in text_of(shown) or text_of(shown) in {"[…]", "…"}


def texts(content: Content) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, TextBlock)]


def is_same_text(shown: Content, content: Content) -> bool:
    """Blank texts have a placeholder, or are left out beside others."""
    if isinstance(content, str):
        return shown == content or (is_blank(content) and isinstance(shown, str))
    kept = tuple(block for block in content if not isinstance(block, TextBlock) or not is_blank(block.text))
    return shown == kept or not kept


def is_as_stored(shown: PromptMessage, row: Message | NewMessage) -> bool:
    arguments = [call.arguments for call in shown.tool_calls]
    is_same = row.role is Role.USER or arguments == [call.arguments for call in row.tool_calls]
    return is_same and is_same_text(shown.content, row.content)


def is_sendable(row: Message) -> bool:
    """An answer without a text is left out, pinned or not."""
    return row.role is not Role.ASSISTANT or bool(row.tool_calls) or not is_same_text("", row.content)


def is_true(item: ShownMessage, row: Message, shown: PromptMessage | None) -> bool:
    match item.form:
        case MessageVariant.WHOLE:
            return shown is not None and is_as_stored(shown, row)
        case MessageVariant.PRUNED:
            return shown is not None and row.role is Role.TOOL and not is_as_stored(shown, row)
        case MessageVariant.TRUNCATED:
            return shown is not None and not is_as_stored(shown, row)
        case MessageVariant.FOLDED | MessageVariant.SUMMARISED | MessageVariant.TRIMMED | MessageVariant.LEFT_OUT:
            return shown is None and item.tokens == 0
