"""A response format on the wire of each provider: sent to those that take a schema, and to no others."""

from dataclasses import replace

from fakes.model_calls import ANTHROPIC_SAYS_OK, CONFIG, OPENAI_SAYS_OK, hear, simple_request
from throughline.domain.basic_types import JsonObject
from throughline.domain.prompt import ModelParameters, ResponseFormat
from throughline.llm.registry import ModelRegistry
from throughline.llm.translate_messages import moved_to_text
from throughline.ports.models import FormatSupport

SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}
REQUEST = replace(simple_request(), response_format=ResponseFormat(SCHEMA, "count", "A number.", strict=True))


async def test_servers_on_openais_wire_are_sent_the_schema() -> None:
    heard = await hear(OPENAI_SAYS_OK, request=REQUEST)
    plain = await hear(OPENAI_SAYS_OK)

    added = {name: value for name, value in heard.sent.items() if name not in plain.sent}
    described = {"name": "count", "description": "A number.", "strict": True, "schema": SCHEMA}
    assert added == {"response_format": {"type": "json_schema", "json_schema": described}}
    assert (heard.pieces, heard.answer.text) == (("ok",), "ok")


async def test_it_wins_over_one_of_the_agents_body_and_leaves_the_rest() -> None:
    given = ModelParameters(body={"response_format": {"type": "json_object"}, "top_k": 20})
    wanted = ResponseFormat(SCHEMA)
    request = replace(simple_request(), parameters=given, response_format=wanted)
    sent = (await hear(OPENAI_SAYS_OK, request=request)).sent

    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert sent["top_k"] == 20
    assert given.body["response_format"] == {"type": "json_object"}


async def test_anthropic_is_sent_none() -> None:
    heard = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", REQUEST)
    plain = await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test")

    assert heard.sent == plain.sent


def test_each_model_says_how_it_is_told() -> None:
    registry = ModelRegistry(CONFIG)
    support = {
        name: registry.get(name, "http://127.0.0.1:1/v1").format_support for name in ("openai:a", "anthropic:claude-b")
    }

    assert support == {"openai:a": FormatSupport.SCHEMA, "anthropic:claude-b": FormatSupport.INSTRUCTION}
    assert registry.get("offline").format_support is FormatSupport.NONE


def test_openais_newer_wire_format_has_it_under_text() -> None:
    described = {"name": "count", "schema": SCHEMA}
    body = {"response_format": {"type": "json_schema", "json_schema": described}, "top_k": 20}

    payload = moved_to_text({"input": [], "text": {"verbosity": "low"}, "extra_body": body})

    assert payload == {
        "input": [],
        "text": {"verbosity": "low", "format": {"type": "json_schema", **described}},
        "extra_body": {"top_k": 20},
    }
    assert moved_to_text({"input": []}) == {"input": []}
    assert "response_format" in body
