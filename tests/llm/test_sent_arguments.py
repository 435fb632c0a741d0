"""Arguments of tool calls on their way back to a model: as they were written where that can be, and never uncounted."""

import json

import pytest

from fakes.model_calls import ANTHROPIC_SAYS_OK, OPENAI_SAYS_OK, hear
from fakes.provider_double.json_types import Json
from throughline.context.measure import count_call
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage
from throughline.domain.tool import is_json_object, read_arguments, readable_arguments, send_again
from throughline.llm.counters import make_counter

NUMBERS = '{"rows":[' + ",".join(str(number % 100) for number in range(2000)) + "]}"
WRITTEN = (NUMBERS, '{"q": 1}', '{ "q" :\n"\\u00e9" , "q": 1E5}', "{}")
NESTED = tuple('{"a":' + "[" * depth + "]" * depth + "}" for depth in (100, 970, 980, 990, 5_000))
NOT_FINITE = ('{"a": 1e999}', '{"a": [-1e999]}', '{"a": NaN}', '{"a": Infinity}')
SENT_OTHERWISE = (*NOT_FINITE, '"' * 4000, "\n" * 3000 + 'x"y"\\' * 900, 'a\tb"c"' * 800, '{"q": oops', "[1]", "")
"""No JSON objects, texts full of what has to be escaped among them."""


def asked(arguments: str) -> ModelRequest:
    messages = (
        PromptMessage(Role.USER, "go"),
        PromptMessage(Role.ASSISTANT, "", (ToolCall("c1", "lookup", arguments),)),
        PromptMessage(Role.TOOL, "found", tool_call_id="c1", name="lookup"),
    )
    return ModelRequest(Prompt("", messages), (), 100)


async def sent_to_openai(arguments: str) -> str:
    heard = await hear(OPENAI_SAYS_OK, request=asked(arguments))
    messages = heard.sent["messages"]
    assert isinstance(messages, list)
    text: str = messages[1]["tool_calls"][0]["function"]["arguments"]
    return text


async def sent_to_anthropic(arguments: str) -> Json:
    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", asked(arguments))
    messages = heard.sent["messages"]
    assert isinstance(messages, list)
    block = next(block for block in messages[1]["content"] if block["type"] == "tool_use")
    value: Json = block["input"]
    return value


@pytest.mark.parametrize("arguments", WRITTEN)
async def test_a_json_object_goes_back_to_openai_byte_for_byte(arguments: str) -> None:
    assert await sent_to_openai(arguments) == arguments


@pytest.mark.parametrize("arguments", WRITTEN)
async def test_a_json_object_goes_back_to_anthropic_as_its_value(arguments: str) -> None:
    assert await sent_to_anthropic(arguments) == json.loads(arguments)


@pytest.mark.parametrize("arguments", [*NOT_FINITE, *NESTED, '{"q": oops', "[1]"])
async def test_what_is_no_json_object_goes_back_inside_one(arguments: str) -> None:
    assert json.loads(await sent_to_openai(arguments)) == {"_raw": arguments}
    assert await sent_to_anthropic(arguments) == {"_raw": arguments}
    assert not is_json_object(arguments)


async def test_half_a_character_is_replaced_and_the_rest_is_kept() -> None:
    assert json.loads(await sent_to_openai('{"q": "\\ud83d!"}')) == {"q": "\N{REPLACEMENT CHARACTER}!"}


@pytest.mark.parametrize("counter", ["tiktoken", "chars"])
@pytest.mark.parametrize(
    "arguments", [*WRITTEN, *SENT_OTHERWISE, '{"rows":[' + "1e15," * 500 + "1]}"], ids=lambda text: text[:12]
)
def test_arguments_are_counted_for_no_less_than_is_sent(arguments: str, counter: str) -> None:
    count, sent = make_counter(counter).count, send_again(arguments)
    counted = count_call(ToolCall("", "", arguments), count)

    assert count(json.dumps(sent.value, ensure_ascii=False, separators=(",", ":"))) <= counted
    assert count(sent.text) <= counted


def test_a_package_that_puts_blanks_between_numbers_sends_half_as_much_again() -> None:
    count = make_counter("tiktoken").count
    counted = count_call(ToolCall("", "", NUMBERS), count)

    assert 1.4 < count(json.dumps(send_again(NUMBERS).value)) / counted < 1.51


def test_brackets_in_strings_are_no_nesting() -> None:
    code = json.dumps({"code": 'print("' + "[{" * 500 + '")'})

    assert is_json_object(code)
    assert is_json_object('{"a":' + "[" * 99 + "]" * 99 + "}")
    assert not is_json_object('{"a":' + "[" * 100 + "]" * 100 + "}")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"a": "x\\u202ey"}', '{\n  "a": "x\\u202ey"\n}'),
        ('{"a": "\u200bü\U000e0041"}', '{\n  "a": "\\u200bü\\udb40\\udc41"\n}'),
        ("no\x07 JSON", "no\\u0007 JSON"),
    ],
)
def test_a_person_sees_every_character_of_arguments(written: str, shown: str) -> None:
    assert readable_arguments(written) == shown


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": NaN}', '{"a": 1e999}', NESTED[-1]])
def test_arguments_that_a_person_wrote_must_be_an_object(text: str) -> None:
    with pytest.raises(InvalidInput, match="one JSON object"):
        read_arguments(text)
