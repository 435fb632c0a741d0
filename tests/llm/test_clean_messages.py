"""What a provider said about a failed call: kept for operators, without the request, the key, or anybody's address."""

import base64
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.model_calls import (
    ANTHROPIC_SAYS_OK,
    CONFIG,
    ON_OPENAI_WIRE,
    OPENAI_SAYS_OK,
    address_for,
    hear,
    refusal_of,
    simple_request,
)
from fakes.provider_double.json_types import Json
from fakes.raw_http_server import EVENT_STREAM, Answer, error_answer, serve_raw
from throughline.context.measure import count_call
from throughline.domain.errors import InvalidInput, ModelInvalidRequest, SettingInvalid
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import NO_PARAMETERS, ModelParameters, ModelRequest, Prompt, PromptMessage, ToolSpec
from throughline.domain.tool import is_json_object, read_arguments, readable_arguments, send_again
from throughline.llm.classify_error import KnownRefusal
from throughline.llm.counters import make_counter
from throughline.llm.provider_error import MOST_CHARACTERS, Sent, clean_message
from throughline.llm.registry import ModelRegistry, ModelsConfig

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüéßñ"
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=9), min_size=1, max_size=12)
CANARY = st.text("0123456789xyz", min_size=8, max_size=12).map(lambda text: f"canary{text}")
BYTES = st.binary(min_size=24, max_size=48)
ALPHANUMERIC = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", min_size=30, max_size=60)
KEYS = st.one_of(
    ALPHANUMERIC.map(lambda text: f"sk-proj-{text}"),
    ALPHANUMERIC.map(lambda text: f"sk-ant-api03-{text}"),
    ALPHANUMERIC.map(lambda text: f"gsk_{text}"),
    ALPHANUMERIC.map(lambda text: f"AIza{text}"),
    ALPHANUMERIC.map(lambda text: f"hf_{text}"),
    ALPHANUMERIC.map(lambda text: f"xai-{text}"),
    BYTES.map(bytes.hex),
)
AROUND = st.sampled_from(["{}", "'{}'", "key={}.", "<{}>", "{},", "https://example.org/?key={}", "Bearer {}"])


def body(message: str) -> Answer:
    return error_answer(400, {"error": {"message": message, "type": "invalid_request_error"}})


@st.composite
def echoes(draw: st.DrawFn) -> tuple[str, str, str]:
    """A prompt with a canary in it, the canary, and a message that repeats the prompt or a long part of it."""
    before, canary, after = draw(WORDS), draw(CANARY), draw(WORDS)
    words = [*before, canary, *after]
    prompt = draw(st.sampled_from([" ", "\n", ", ", "\\n", '"'])).join(words)
    first = draw(st.integers(0, max(0, min(len(before), len(words) - 4))))
    last = draw(st.integers(min(max(first + 4, len(before) + 1), len(words)), len(words)))
    part = prompt if draw(st.booleans()) else " ".join(words[first:last])
    shown = draw(st.sampled_from([part, json.dumps(part), f"`{part}`", f"({part})", json.dumps(json.dumps(part))]))
    return prompt, canary, f"Invalid content of message 3: {shown} - please shorten it"


@given(echoes())
def test_words_of_a_prompt_never_come_out(case: tuple[str, str, str]) -> None:
    prompt, canary, message = case

    cleaned = clean_message(message, Sent((prompt,)))

    assert canary not in cleaned


@given(echoes(), st.integers(0, 60))
def test_words_of_a_prompt_do_not_come_out_of_a_repetition_that_is_cut(case: tuple[str, str, str], cut: int) -> None:
    prompt, canary, _ = case
    shown = prompt[: max(len(prompt) - cut, 0)]

    cleaned = clean_message(f"Bad text: {shown}", Sent((prompt,)))

    is_repetition = len(re.findall(r"\w+", shown)) > 4
    assert not is_repetition or canary[:8] not in cleaned


@given(KEYS, AROUND, WORDS)
def test_keys_never_come_out(key: str, around: str, words: list[str]) -> None:
    cleaned = clean_message(f"{' '.join(words)} {around.format(key)} {' '.join(words)}", Sent())

    assert key[-12:] not in cleaned
    assert key[:16] not in cleaned


@given(BYTES, AROUND)
def test_texts_that_look_random_never_come_out(secret: bytes, around: str) -> None:
    for key in (base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode()):
        if len(set(key)) > 12:
            assert key not in clean_message(f"Incorrect key {around.format(key)} sent", Sent())


@given(st.text("abcdefghij -_.", min_size=6, max_size=30).filter(lambda text: text.strip() == text))
def test_the_configured_key_never_comes_out_whatever_its_form(key: str) -> None:
    assert key not in clean_message(f"Incorrect API key: {key}. See the manual", Sent(secrets=(key,)))


@given(st.text(max_size=3000))
def test_every_message_becomes_one_bounded_line(said: str) -> None:
    cleaned = clean_message(said[:2000], Sent())

    assert len(cleaned) <= MOST_CHARACTERS
    assert cleaned.isprintable()
    assert cleaned == " ".join(cleaned.split())


@pytest.mark.parametrize(
    ("said", "cleaned"),
    [
        ("", ""),
        ("***", ""),
        ("one\ntwo\tthree\x00\x1b[31m", "one two three [31m"),
        ("Incorrect API key provided: sk-ab***yz. You can find it.", "Incorrect API key provided: … You can find it."),
        ("Rate limit reached in organization org-abcdef123 on RPM", "Rate limit reached in organization … on RPM"),
        ("Project `proj_9KoeXdtHe0YQJbsF2FQAKmzl` has no access", "Project … has no access"),
        ("Ask anna.b@example.org for access", "Ask … for access"),
        ("request id: req_011CVtwxbUMYkHKtk3YxTtSt", "request id: …"),
        ("run 0190b6a5-7c1e-7a4b-9a3e-1f2e3d4c5b6a failed", "run … failed"),
        ("Authorization: Bearer abc failed", "Authorization: … failed"),
        ("The model `meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8` does not exist.", None),
        ("No endpoints found. See https://openrouter.ai/docs/guides/routing/provider-selection", None),
        ("See https://help.openai.com/en/articles/10910291-api-organization-verification", None),
        ("gpt-4o-2024-08-06 and claude-3-opus-20240229 and qwen3-coder:30b-a3b-q4_K_M", None),
    ],
)
def test_messages_are_cleaned(said: str, cleaned: str | None) -> None:
    assert clean_message(said, Sent()) == (said if cleaned is None else cleaned)


def test_a_key_at_the_end_of_a_message_that_was_cut_does_not_come_out_in_part() -> None:
    said = ("Your key does not fit. " + "ab\n" * 800)[: 2000 - 9] + " mysecret"[:9]

    assert "mysecret" not in clean_message(said, Sent(secrets=("mysecret-and-more",)))


def test_common_short_words_of_a_conversation_stay_in_the_message() -> None:
    said = "No endpoints found that support tool use"

    assert clean_message(said, Sent(("No", "that", "use", "yes"))) == said


def test_words_without_spaces_are_compared_by_their_characters() -> None:
    prompt = "私の秘密のパスワードは犬の名前です"

    assert clean_message(f"invalid text: {prompt[3:14]}…", Sent((prompt,))) == "invalid text: …"


@pytest.mark.parametrize("known", ON_OPENAI_WIRE, ids=lambda known: known.name)
async def test_what_a_server_says_is_kept_beside_our_words(known: KnownRefusal) -> None:
    error = await refusal_of(body(known.says))

    words = re.findall(r"[A-Za-z]{4,}", error.provider_message)
    assert words
    assert set(words) <= set(re.findall(r"[A-Za-z]{4,}", known.says))


async def test_vllms_advice_is_kept_word_for_word() -> None:
    said = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

    error = await refusal_of(body(said))

    assert error.provider_message == said
    assert said not in error.detail


async def test_no_text_of_a_request_comes_back() -> None:
    call = ToolCall("c1", "lookup", '{"customer": "Ottilie Brunnquell of Sankt Florian"}')
    picture = ImageBlock("https://cdn.example.org/private/ottilie-at-home.png")
    request = ModelRequest(
        Prompt(
            "You speak for the house of Brunnquell and sons.",
            (
                PromptMessage(Role.USER, (TextBlock("Where does Ottilie live now, please?"), picture)),
                PromptMessage(Role.ASSISTANT, "", tool_calls=(call,)),
                PromptMessage(Role.TOOL, "Seven Linden Lane, second floor", tool_call_id="c1"),
            ),
        ),
        (ToolSpec("lookup", "Find where our customers live now.", {"type": "object", "properties": {}}),),
        100,
    )
    texts = (
        "the house of Brunnquell and",
        "does Ottilie live now, please",
        call.arguments,
        "Seven Linden Lane, second",
        "where our customers live",
        picture.url,
    )

    error = await refusal_of(body(f"Cannot read {' | '.join(texts)} here"), request=request)

    assert error.provider_message == "Cannot read … here"


async def test_the_models_own_key_does_not_come_back_whatever_its_form() -> None:
    registry = ModelRegistry(ModelsConfig(read_variable={"GATEWAY_KEY": "plainwords"}.__getitem__))
    async with serve_raw(body("the key plainwords is not known")) as server:
        model = registry.get("openai:gpt-4o", f"{server.url}/v1", "GATEWAY_KEY")
        with pytest.raises(ModelInvalidRequest) as caught:
            await anext(model.stream(simple_request()))
    await registry.close()

    assert caught.value.provider_message == "the key … is not known"


async def test_a_page_of_html_and_an_answer_of_ours_leave_no_message() -> None:
    assert (await refusal_of(error_answer(502, "<html>bad gateway</html>"))).provider_message == ""
    assert (await refusal_of(Answer(["<html>"], content_type="text/html"))).provider_message == ""


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


COMMON = ModelParameters(temperature=0.0, top_p=0.5, stop=("END",), parallel_tool_calls=False, body={"top_k": 20})
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


async def test_openai_is_sent_what_is_set_and_nothing_else() -> None:
    given = replace(COMMON, seed=7, reasoning_effort="low")
    heard = await hear(OPENAI_SAYS_OK, request=replace(simple_request(), parameters=given))
    plain = await hear(OPENAI_SAYS_OK)

    added = {name: value for name, value in heard.sent.items() if name not in plain.sent}
    assert added == {
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "top_k": 20,
    }


async def test_parallel_calls_are_spoken_of_only_with_tools() -> None:
    with_tools = replace(simple_request(), tools=(TOOL,), parameters=COMMON)

    assert (await hear(OPENAI_SAYS_OK, request=with_tools)).sent["parallel_tool_calls"] is False
    anthropic = (await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", with_tools)).sent
    assert anthropic["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_anthropic_is_sent_them_under_its_names() -> None:
    given = replace(COMMON, reasoning_effort="low")
    sent = (await hear(ANTHROPIC_SAYS_OK, "anthropic:claude-test", replace(simple_request(), parameters=given))).sent

    assert (sent["temperature"], sent["top_p"], sent["stop_sequences"], sent["top_k"]) == (0.0, 0.5, ["END"], 20)
    assert sent["output_config"] == {"effort": "low"}
    assert "stop" not in sent


async def test_gemini_is_asked_for_its_thoughts() -> None:
    body = '{"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}'
    answer = Answer([f"data: {body}\r\n\r\n"], content_type=EVENT_STREAM)
    given = ModelParameters(include_thoughts=True)

    sent = (await hear(answer, "google_genai:gemini-test", replace(simple_request(), parameters=given))).sent
    plain = (await hear(answer, "google_genai:gemini-test")).sent

    assert '"thinkingConfig": {"include_thoughts": true}' in json.dumps(sent)
    assert "thinkingConfig" not in json.dumps(plain)


@pytest.mark.parametrize(
    ("model", "answer"), [("gpt-4o", OPENAI_SAYS_OK), ("anthropic:claude-test", ANTHROPIC_SAYS_OK)]
)
async def test_headers_are_sent_beside_the_services_own(
    model: str, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "own-key-1")
    registry = ModelRegistry(replace(CONFIG, read_variable=lambda _: "own-key-1"))
    request = replace(simple_request(), parameters=ModelParameters(headers={"X-Team": "search"}))
    async with serve_raw(answer) as server:  # type: ignore[arg-type]  # an Answer
        chat_model = registry.get(model, address_for(model, server), "OWN_KEY")
        _ = [event async for event in chat_model.stream(request)]
        await registry.close()

    assert "x-team: search" in server.heads[0].lower()
    assert "own-key-1" in server.heads[0]


@pytest.mark.parametrize(
    ("model", "parameters", "refused"),
    [
        ("anthropic:claude-test", ModelParameters(seed=1), "seed"),
        ("google_genai:gemini-test", ModelParameters(body={"a": 1}), "body"),
        ("google_genai:gemini-test", ModelParameters(parallel_tool_calls=True), "parallel_tool_calls"),
    ],
)
def test_what_a_provider_does_not_take_is_refused_before_any_call(
    model: str, parameters: ModelParameters, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "test-key")
    chat_model = ModelRegistry().get(model)

    chat_model.check_parameters(NO_PARAMETERS)
    with pytest.raises(SettingInvalid) as caught:
        chat_model.check_parameters(parameters)

    assert f"takes no {refused}: remove it. It takes: " in caught.value.detail


def test_the_offline_model_takes_all() -> None:
    given = replace(COMMON, seed=1, headers={"a": "b"})

    assert ModelRegistry().get("offline").check_parameters(given) is None  # type: ignore[func-returns-value]  # it raises
