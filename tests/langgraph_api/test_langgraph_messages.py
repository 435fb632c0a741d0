"""Messages in the forms of LangChain's clients."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from throughline.domain.basic_types import JsonValue
from throughline.domain.message import ImageBlock, Role, Source, TextBlock, text_of
from throughline.langgraph_api.messages import client_id_of, read_input

IMAGE = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    "given",
    [
        "hello",
        ["hello"],
        ["human", "hello"],
        [["user", "hello"]],
        {"messages": "hello"},
        {"messages": {"role": "user", "content": "hello"}},
        {"messages": [{"type": "human", "content": [{"type": "text", "text": "hello"}]}], "other": 1},
        {"messages": [HumanMessage("hello").model_dump()]},
        {"messages": [{"type": "HumanMessageChunk", "content": "hello"}]},
        {
            "messages": [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain_core", "messages", "HumanMessage"],
                    "kwargs": {"content": "hello"},
                }
            ]
        },
    ],
)
def test_a_message_of_the_user_has_many_forms(given: JsonValue) -> None:
    (message,) = read_input(given, Source.API).messages

    assert (message.role, message.content) == (Role.USER, "hello")


def test_a_conversation_of_langchain_messages_is_read() -> None:
    calls = [{"name": "add", "args": {"a": 1}, "id": "call_1", "type": "tool_call"}]
    said = [
        SystemMessage("Be brief."),
        HumanMessage("1 + 1?", id="m-1"),
        AIMessage(
            [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Let me see."}], tool_calls=calls
        ),
        ToolMessage("2", tool_call_id="call_1"),
    ]

    sent = read_input({"messages": [message.model_dump() for message in said]}, Source.API)

    asked, step, result = sent.messages
    assert sent.instructions == "Be brief."
    assert client_id_of(asked.metadata) == "m-1"
    assert (text_of(step.content), step.tool_calls[0].arguments) == ("Let me see.", '{"a": 1}')
    assert (result.tool_call_id, result.name) == ("call_1", "add")


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": IMAGE},
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": "AAAA"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
        {"type": "image", "source_type": "url", "url": IMAGE},
    ],
)
def test_images_have_the_forms_of_content_blocks(image: JsonValue) -> None:
    content: JsonValue = [{"type": "text", "text": "What is it?"}, image]

    (message,) = read_input({"messages": [{"role": "user", "content": content}]}, Source.API).messages

    assert message.content == (TextBlock("What is it?"), ImageBlock(IMAGE))
