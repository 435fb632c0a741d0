"""What the values of LangGraph's checkpoints are decoded to, also hostile ones; nothing that they name is imported."""

import json
import sys

import ormsgpack
import pytest

from throughline.db.langgraph_checkpoints import apply_writes
from throughline.db.langgraph_values import Named, Undecodable, decode, read_message


def packed(code: int, *content: object) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(content)))


@pytest.mark.parametrize("code", range(6))
def test_no_class_that_a_row_names_is_imported(code: int) -> None:
    value = decode("msgpack", packed(code, "antigravity", "open", {"content": "x"}, "fly"))

    assert value == Named("antigravity", "open", {"content": "x"})
    assert read_message(value) is None
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "constructor",
    [
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "llms", "HumanMessage"], "kwargs": {"content": "x"}},
    ],
)
def test_no_class_in_json_is_made(constructor: dict[str, object]) -> None:
    value = decode("json", json.dumps(constructor).encode())

    assert isinstance(value, Named)
    assert read_message(value) is None


def nested(depth: int) -> bytes:
    data = ormsgpack.packb("x")
    for _ in range(depth):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("pickle", b"cos\nsystem\n(S'true'\ntR."),
        ("msgpack+aes", b"\x00"),
        ("msgpack", b"\xc1"),
        ("msgpack", b""),
        ("msgpack", nested(150)),
        ("json", b"[" * 100_000),
        ("json", b"\xff"),
    ],
)
def test_what_cannot_be_decoded_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(kind, data)


def test_a_message_that_is_nested_too_deeply_is_refused() -> None:
    content: object = "x"
    for _ in range(200):
        content = [content]

    with pytest.raises(Undecodable, match="nested too deeply"):
        read_message({"role": "user", "content": content})


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "user", "content": "a", "id": "1"}, {"role": "user", "content": "a", "id": "1", "type": "human"}),
        ({"type": "ai", "content": "b"}, {"content": "b", "type": "ai"}),
        (["assistant", "c"], {"content": "c", "type": "ai"}),
        ("d", {"content": "d", "type": "human"}),
        (Named("langchain_core.messages.ai", "AIMessageChunk", {"content": "e"}), {"content": "e", "type": "ai"}),
        ({"role": "robot", "content": "f"}, None),
        (7, None),
    ],
)
def test_messages_in_each_form_that_langgraph_takes_are_read(item: object, message: object) -> None:
    assert read_message(item) == message


def test_writes_replace_remove_and_overwrite() -> None:
    def said(text: str, given: str) -> dict[str, str]:
        return {"type": "human", "content": text, "id": given}

    gone = Named("langchain_core.messages.modifier", "RemoveMessage", {"id": "2"})
    changed = apply_writes([said("a", "1"), said("b", "2")], [[said("A", "1")], gone, said("c", "3"), "d", "d"])
    overwritten = apply_writes(
        [said("a", "1")], [said("b", "2"), Named("langgraph.types", "Overwrite", {"value": [said("c", "3")]})]
    )

    assert changed == [said("A", "1"), said("c", "3"), "d", "d"]
    assert overwritten == [said("c", "3")]
    assert apply_writes([said("a", "1")], [{"__overwrite__": []}]) == []
