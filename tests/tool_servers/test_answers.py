"""What a server may ask, how the question reads, and which answers fit it."""

import json

import pytest

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.elicitation import Elicitation, InputRequest, PausedCall, read_input
from throughline.domain.errors import InvalidInput
from throughline.domain.message import ToolCall

TEXT: JsonObject = {"type": "string"}
TITLED: JsonObject = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
NAMED: JsonObject = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
COLOURS: JsonObject = {"type": "array", "items": {"enum": ["red", "blue"]}}


def asking(**fields: JsonObject) -> InputRequest:
    properties: dict[str, JsonValue] = {name: dict(field) for name, field in fields.items()}
    return InputRequest("q", "Please say.", {"type": "object", "properties": properties, "required": [*fields]})


def shown(request: InputRequest, ended_as: str | None = None) -> dict[str, object]:
    call = ToolCall("call_1", "shop__buy", "{}")
    asked = PausedCall(call, "shop", Elicitation((request,), ended_as=ended_as), number=1).as_question()
    assert (asked.id, asked.name) == ("call_1:1", "ask_user")
    found: dict[str, object] = json.loads(asked.arguments)
    return found


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (TEXT, " Husum ", "Husum"),
        (TEXT, '{"x": "Husum"}', "Husum"),
        ({"type": "integer"}, "42", 42),
        ({"type": "number", "minimum": 0}, "4.5", 4.5),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "False", False),
        (TITLED, "Small", "s"),
        (NAMED, "l", "l"),
        (COLOURS, '["red"]', ["red"]),
    ],
)
def test_an_answer_becomes_the_value_of_its_field(field: JsonObject, text: str, value: object) -> None:
    given = read_input(asking(x=field), text)

    assert (given.action, given.content) == ("accept", {"x": value})


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"x": {"type": "integer"}}, "4.5", "'x' must be of the type integer"),
        ({"x": {"type": "integer"}}, "true", "'x' must be of the type integer"),
        ({"x": {"type": "number"}}, "NaN", "'x' must be of the type number"),
        ({"x": {"type": "boolean"}}, "perhaps", "'x' must be of the type boolean"),
        ({"x": {"type": "integer", "maximum": 5}}, "6", "'x' must be at most 5"),
        ({"x": {"type": "string", "minLength": 3}}, "ab", "'x' must be at least 3 characters"),
        ({"x": NAMED}, "Medium", "'x' must be one of: s, l"),
        ({"x": COLOURS}, '["green"]', "'x' must be a list of: blue, red"),
        ({"x": COLOURS}, "[[]]", "'x' must be a list of: blue, red"),
        ({"x": TEXT, "y": TEXT}, "a", "one JSON object with the fields x, y"),
        ({"x": TEXT, "y": TEXT}, '{"x": "a"}', "'y' is missing"),
        ({"x": TEXT, "y": TEXT}, '{"x": "a", "y": null}', "'y' must be of the type string"),
        ({"x": TEXT}, '{"x": "a", "z": 1}', "it has no field 'z'"),
        ({}, "perhaps", "with `accept` or `decline` only"),
        ({"x": TEXT}, "a" * 20_001, "20,001 characters"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(fields: dict[str, JsonObject], text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        read_input(asking(**fields), text)


def test_every_question_can_be_declined() -> None:
    given = read_input(asking(x={"type": "integer"}), "Decline")

    assert (given.action, given.content) == ("decline", None)


def test_an_address_is_agreed_to_without_content() -> None:
    request = InputRequest("q", "Sign in.", {}, "https://shop.example/sign-in")

    assert shown(request)["options"] == ["accept", "decline"]
    assert "https://shop.example/sign-in" in str(shown(request)["question"])
    assert read_input(request, "accept").content is None
    assert read_input(InputRequest("q", "Go on?", {}), "yes").content == {}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"x": {"type": "boolean"}}, ["yes", "no", "decline"]),
        ({"x": TITLED}, ["Small", "Large", "decline"]),
        ({"x": TEXT}, []),
        ({"x": NAMED, "y": NAMED}, []),
        ({}, ["accept", "decline"]),
    ],
)
def test_a_question_offers_the_answers_to_choose_from(fields: dict[str, JsonObject], options: list[str]) -> None:
    assert shown(asking(**fields))["options"] == options


def test_a_form_says_its_fields_and_how_to_refuse() -> None:
    city: JsonObject = {"type": "string", "description": "where to go"}

    assert shown(asking(city=city, size=NAMED), "cancelled")["question"] == (
        "The server shop asks, for its tool shop__buy. Answer `decline` to refuse.\n\n"
        "This server cannot wait: your answer makes the call once more. It has ended with: cancelled\n\n"
        "Please say.\n\n"
        "- city (string, required): where to go\n"
        "- size (string, required, one of Small, Large)\n"
        'Answer with a JSON object, such as {"city": "…", "size": "…"}.'
    )


def test_long_texts_of_a_server_leave_room_for_what_the_service_says() -> None:
    long: JsonObject = {"type": "string", "description": "d" * 5_000}
    question = str(shown(asking(**{"n" * 300: long}))["question"])

    assert question.startswith("The server shop asks, for its tool shop__buy. Answer `decline` to refuse.")
    assert len(question) < 1_000
