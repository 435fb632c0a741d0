"""What a provider said about a failed call: kept for operators, without the request, the key, or anybody's address."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.known_refusals import ON_OPENAI_WIRE
from fakes.model_calls import refusal_of, simple_request
from fakes.raw_http_server import Answer, error_answer, serve_raw
from throughline.domain.errors import ModelInvalidRequest
from throughline.domain.message import ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import ModelRequest, Prompt, PromptMessage, ToolSpec
from throughline.llm.clean_message import MOST_CHARACTERS, Sent, clean_message
from throughline.llm.known_refusal import KnownRefusal
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
