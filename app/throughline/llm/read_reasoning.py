"""Reading of a model's reasoning from LangChain's chunks: each provider's package puts it elsewhere.

Chunks of our own OpenAI wire have it in `additional_kwargs`, where the packages of DeepSeek, Ollama, Groq and xAI put
it too. Anthropic, Google and Bedrock have blocks in the content, and so does OpenAI's Responses API.
"""

from collections.abc import Iterator, Mapping

from langchain_core.messages import AIMessageChunk

MEMBER = "reasoning_content"
"""The member of `additional_kwargs` with a piece of reasoning."""

PARAGRAPH = "\n\n"


def read_reasoning(chunk: AIMessageChunk) -> str:
    """Return the piece of reasoning in the chunk, '' if there is none."""
    said = chunk.additional_kwargs.get(MEMBER)
    if isinstance(said, str) and said:
        return said
    return "".join(_of_block(block) for block in reasoning_blocks(chunk)) or _of_summary(chunk.additional_kwargs)


def reasoning_blocks(chunk: AIMessageChunk) -> Iterator[Mapping[str, object]]:
    """Yield the content blocks of the chunk that are no text for the user."""
    for block in [] if isinstance(chunk.content, str) else chunk.content:
        if isinstance(block, Mapping) and block.get("type") != "text":
            yield block


def _of_block(block: Mapping[str, object]) -> str:
    match block:
        case {"type": "thinking", "thinking": str(text)}:  # Anthropic, Google
            return text
        case {"type": "reasoning", "reasoning": str(text)}:  # LangChain's own form
            return text
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:  # Bedrock
            return text
        case {"type": "reasoning"}:
            return _of_parts(block)
        case _:
            return ""


def _of_summary(members: Mapping[str, object]) -> str:
    """Return the reasoning of OpenAI's Responses API in LangChain's older form."""
    reasoning = members.get("reasoning")
    return _of_parts(reasoning) if isinstance(reasoning, Mapping) else ""


def _of_parts(reasoning: Mapping[str, object]) -> str:
    """Return the text of the parts of a summary. A further part opens with an empty text: it is a new paragraph."""
    parts = reasoning.get("summary")
    texts = []
    for part in parts if isinstance(parts, list) else ():
        match part:
            case {"text": "", "index": int(index)} if index > 0:
                texts.append(PARAGRAPH)
            case {"text": str(text)}:
                texts.append(text)
            case _:
                pass
    return "".join(texts)
