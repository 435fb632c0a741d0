"""What is made of a message for a model is made once, and says the same as if it were made anew."""

import gc
from dataclasses import replace
from typing import Any

from langchain_core.messages import SystemMessage

from throughline.domain.identity_cache import ComputedCache, IdentityCache
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import Prompt, PromptMessage
from throughline.llm.openai_wire import make_openai
from throughline.llm.translate_messages import to_langchain

MESSAGES = (
    PromptMessage(Role.USER, (TextBlock("Look:"), ImageBlock("data:image/png;base64,iVBORw0KGgo="))),
    PromptMessage(Role.ASSISTANT, "", (ToolCall("c1", "grep", '{"pattern": "a"}'),)),
    PromptMessage(Role.TOOL, "two lines", tool_call_id="c1", name="grep"),
    PromptMessage(Role.ASSISTANT, "Found."),
)


def written(prompt: Prompt, model: str = "gpt-4o") -> list[dict[str, Any]]:  # Any: parsed JSON
    chat = make_openai(model, "http://127.0.0.1:1/v1", idle_seconds=1, connect_seconds=1, api_key="any")
    payload = chat._get_request_payload(to_langchain(prompt, may_share=True))  # noqa: SLF001  # what is sent
    messages: list[dict[str, Any]] = payload["messages"]
    return messages


def test_a_model_is_given_a_message_as_the_same_object_that_says_what_a_new_one_says() -> None:
    first, second = (to_langchain(Prompt("Be brief.", MESSAGES), may_share=True) for _ in range(2))

    assert [one is other for one, other in zip(first, second, strict=True)] == [False, True, True, True, True]
    assert first == second == to_langchain(Prompt("Be brief.", MESSAGES))


def test_what_is_made_of_long_arguments_is_not_kept() -> None:
    call = ToolCall("c1", "grep", '{"numbers": [' + "[1000]," * 200 + "[1000]]}")
    prompt = Prompt("Be brief.", (PromptMessage(Role.ASSISTANT, "", (call,)),))

    first, second = (to_langchain(prompt, may_share=True)[1] for _ in range(2))

    assert first == second
    assert first is not second


def test_a_growing_prompt_is_written_as_if_each_message_were_new() -> None:
    grown = [written(Prompt("Be brief.", MESSAGES[:length])) for length in (1, 3, 4, 4)]
    fresh = written(Prompt("Be brief.", tuple(replace(message) for message in MESSAGES)))

    assert grown == [fresh[:2], fresh[:4], fresh, fresh]


def test_models_that_name_the_system_prompt_otherwise_share_nothing_of_it() -> None:
    prompt = Prompt("Be brief.", MESSAGES)

    assert [written(prompt, model)[0]["role"] for model in ("gpt-4o", "o3", "gpt-4o")] == [
        "system",
        "developer",
        "system",
    ]


def test_what_is_made_of_a_message_goes_with_it() -> None:
    made = ComputedCache[PromptMessage, SystemMessage](lambda message: SystemMessage(str(message.content)))
    message = PromptMessage(Role.USER, "Hello")
    twin = replace(message)

    assert made.of(message) is made.of(message)
    assert made.of(twin) is not made.of(message)
    assert len(made) == 2
    del message, twin
    gc.collect()
    assert len(made) == 0


def test_what_is_kept_beside_a_value_is_found_for_this_one_alone() -> None:
    beside, message = IdentityCache[PromptMessage, str](), PromptMessage(Role.USER, "Hello")

    beside.keep(message, "first")
    beside.keep(message, "second")

    assert beside.find(message) == "second"
    assert beside.find(replace(message)) is None
