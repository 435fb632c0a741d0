"""LangChain's ChatAnthropic, changed so that invalid usage numbers in a stream do not make the answer fail.

Imported only if such a model is used, because the provider package is optional.
"""

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from pydantic import BaseModel

from throughline.llm.assemble_answer import is_token_count


class TolerantChatAnthropic(ChatAnthropic):
    """ChatAnthropic that takes every block, and ignores reported usage which is no number, as some gateways send it."""

    def _make_message_chunk_from_anthropic_event(
        self,
        event: Any,  # noqa: ANN401  # LangChain's signature: one of many events
        **kwargs: Any,  # noqa: ANN401  # LangChain's signature
    ) -> tuple[AIMessageChunk | None, Any]:
        usage = getattr(event, "usage", None)
        if isinstance(usage, BaseModel):
            event.usage = _mended(usage)
        # Without tools LangChain expects text alone, and warns of the other blocks that a model which thinks sends.
        kwargs["coerce_content_to_string"] = False
        return super()._make_message_chunk_from_anthropic_event(event, **kwargs)


def _mended(usage: BaseModel) -> BaseModel:
    """Return the usage with None in place of every value that is neither a token count nor a group of token counts."""
    return usage.model_copy(update={name: None for name, value in usage if not _is_readable(value)})


def _is_readable(value: object) -> bool:
    if isinstance(value, BaseModel):
        return all(is_token_count(part) for _, part in value)
    return is_token_count(value)
