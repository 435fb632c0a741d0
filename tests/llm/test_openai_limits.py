"""What other providers store and imports bring, in the form that OpenAI takes."""

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, hear
from fakes.provider_double import ProviderDouble, Verdict
from fakes.provider_double.json_types import Json
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import AnswerComplete, ModelRequest, Prompt, PromptMessage
from throughline.llm.chat_model import MOST_CALLS, within_openai_limits
from throughline.llm.providers import PROVIDERS
from throughline.llm.registry import ModelRegistry
from throughline.llm.translate_messages import to_langchain

IMAGE = ImageBlock("https://example.org/a.png")
OTHER_IMAGE = ImageBlock("data:image/png;base64,iVBORw0KGgo=", detail="low")
LONG_ID = "functions.screenshot:0/" + "y" * 60


def step(*calls: str, text: str = "") -> PromptMessage:
    return PromptMessage(Role.ASSISTANT, text, tuple(ToolCall(call, "shot", "{}") for call in calls))


def result(call: str, content: Content = "done") -> PromptMessage:
    return PromptMessage(Role.TOOL, content, tool_call_id=call, name="shot")


GO = PromptMessage(Role.USER, "go")
ON = PromptMessage(Role.USER, "go on")
SEEN = (GO, step("a", "b"), result("a", (TextBlock("It is"), IMAGE)), result("b", (OTHER_IMAGE,)), ON)
MANY = tuple(f"c{number}" for number in range(2 * MOST_CALLS + 1))
LONG_STEP = (GO, step(*MANY, text="Let me see."), *map(result, MANY), ON)
LONG_IDS = (GO, step(LONG_ID, LONG_ID + "z", "short"), result(LONG_ID), result(LONG_ID + "z"), result("short"), ON)


async def sent_to_openai(messages: Sequence[PromptMessage], double: ProviderDouble) -> tuple[Json, ...]:
    """Ask the strict double, which must answer, and return what it was sent."""
    registry = ModelRegistry(CONFIG)
    model = registry.get("openai:double-128k-cl100k", double.url)
    events = [event async for event in model.stream(ModelRequest(Prompt("Be brief.", tuple(messages)), (), 100))]
    await registry.close()
    assert isinstance(events[-1], AnswerComplete)
    assert [record.verdict for record in double.requests] == [Verdict.ANSWERED]
    return double.requests[0].prompt


def test_a_prompt_within_the_limits_stays_the_same_object() -> None:
    messages = (GO, step("a"), result("a"), PromptMessage(Role.USER, (TextBlock("Look:"), IMAGE)))

    assert within_openai_limits(messages) is messages


def test_images_of_results_stand_in_a_user_message_behind_all_results_of_their_step() -> None:
    messages = within_openai_limits(SEEN)

    roles = [message.role for message in messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER, Role.USER]
    follow, label = (
        TextBlock("[The images of this result follow the results.]"),
        TextBlock("[From the result of shot:]"),
    )
    assert [message.content for message in messages[2:5]] == [
        (TextBlock("It is"), follow),
        (follow,),
        (label, IMAGE, label, OTHER_IMAGE),
    ]
    assert messages[0] is GO
    assert messages[-1] is ON


def test_a_step_of_more_calls_than_openai_takes_becomes_several_with_their_results() -> None:
    messages = within_openai_limits(LONG_STEP)

    steps = [message for message in messages if message.tool_calls]
    assert [len(message.tool_calls) for message in steps] == [MOST_CALLS, MOST_CALLS, 1]
    assert [message.content for message in steps] == ["Let me see.", "", ""]
    assert [call.id for message in steps for call in message.tool_calls] == list(MANY)
    assert [message.tool_call_id for message in messages if message.role is Role.TOOL] == list(MANY)


@pytest.mark.parametrize("messages", [SEEN, LONG_STEP, LONG_IDS], ids=["images", "many calls", "long ids"])
async def test_a_strict_server_takes_it(messages: Sequence[PromptMessage], provider_double: ProviderDouble) -> None:
    sent = await sent_to_openai(messages, provider_double)

    assert sent[-1] == {"role": "user", "content": "go on"}


async def test_a_long_id_becomes_the_same_short_one_for_call_and_result(provider_double: ProviderDouble) -> None:
    sent = await sent_to_openai(LONG_IDS, provider_double)

    asked = [call["id"] for call in sent[2]["tool_calls"]]
    assert asked == [message["tool_call_id"] for message in sent[3:6]]
    assert len(set(asked)) == 3
    assert asked[2] == "short"


async def test_anthropic_is_sent_ids_of_its_alphabet_and_images_in_their_results() -> None:
    messages = (GO, step(LONG_ID), result(LONG_ID, (TextBlock("It is"), IMAGE)))

    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", ModelRequest(Prompt("", messages), (), 100))

    sent = heard.sent["messages"]
    assert isinstance(sent, list)
    asked, answered = sent[1]["content"][0], sent[2]["content"][0]
    assert asked["id"] == answered["tool_use_id"]
    assert asked["id"].removeprefix("call_").isalnum()
    assert [block["type"] for block in answered["content"]] == ["text", "image"]


def test_no_two_ids_become_the_same_one() -> None:
    (made,) = ids_sent("a.b")

    assert len(set(ids_sent("a.b", made))) == 2


def ids_sent(*calls: str) -> list[str]:
    (message,) = to_langchain(Prompt("", (step(*calls),)))
    assert isinstance(message, AIMessage)
    return [str(call["id"]) for call in message.tool_calls]


@pytest.mark.parametrize("name", ["openai", "azure_openai", "langsmith"])
def test_whoever_speaks_openais_wire_has_its_limits(name: str) -> None:
    assert PROVIDERS[name].has_openai_limits
