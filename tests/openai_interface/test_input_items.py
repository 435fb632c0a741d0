"""Input items of the Responses interface as messages: calls that follow each other, and what a request may not hold."""

import base64
import json

import pytest

from throughline.domain.errors import InvalidInput
from throughline.domain.message import NewMessage, Source
from throughline.http.openai_messages import MAX_CALLS
from throughline.openai.compaction_item import CompactionItem
from throughline.openai.input_items import CallItem, CallResultItem, Item, read_items


def calls(number: int) -> list[Item]:
    return [CallItem(type="function_call", call_id=f"c{place}", name="f") for place in range(number)]


def read(*items: Item) -> tuple[NewMessage, ...]:
    return read_items(items, Source.API)[1]


def compaction(content: object) -> CompactionItem:
    written = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
    return CompactionItem(type="compaction", encrypted_content=written)


def test_calls_that_follow_each_other_are_one_message() -> None:
    result = CallResultItem(type="function_call_output", call_id="c0", output="x")

    messages = read(*calls(MAX_CALLS), result, *calls(2))

    assert [len(message.tool_calls) for message in messages] == [MAX_CALLS, 0, 2]
    assert [call.id for call in messages[0].tool_calls[-2:]] == ["c998", "c999"]
    assert messages[1].name == "f"


def test_a_message_takes_no_more_calls_than_one_of_a_chat() -> None:
    with pytest.raises(InvalidInput, match=r"'c1000' .* at most 1,000 calls"):
        read(*calls(MAX_CALLS + 1))


def test_a_nul_in_a_compaction_item_is_replaced_like_in_any_text() -> None:
    said = {"type": "message", "role": "user", "content": "a\x00b"}

    summary, message = read(compaction({"version": 1, "summary": "They\x00met.", "items": [said]}))

    assert str(summary.content).endswith("They\N{REPLACEMENT CHARACTER}met.")
    assert message.content == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("nested", [["x"] * 3, "x"])
def test_a_compaction_item_nested_too_deeply_is_one_of_another_service(nested: object) -> None:
    for _ in range(70):
        nested = [nested]

    with pytest.raises(InvalidInput, match="this service has not made"):
        read(compaction({"version": 1, "summary": "", "items": [{"a": nested}]}))
