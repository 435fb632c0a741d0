"""The double counts in three ways and refuses what is over a model's window, with OpenAI's numbers."""

import httpx
import pytest

from fakes.provider_double import ProviderDouble, Verdict
from fakes.waiting import HANG_SECONDS

TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}


def ask(double: ProviderDouble, model: str, text: str, **more: object) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    return httpx.post(
        f"{double.url}/chat/completions", json=body, headers={"authorization": "Bearer key"}, timeout=HANG_SECONDS
    )


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("double-8k-cl100k", 3 + 5 + 6),  # reply, message, "日本語のテ" in cl100k
        ("double-8k-o200k", 3 + 4 + 4),
        ("double-8k-bytes2", 3 + 7 + 8),
    ],
)
def test_each_model_counts_in_its_own_way(provider_double: ProviderDouble, model: str, tokens: int) -> None:
    response = ask(provider_double, model, "日本語のテ")

    assert response.json()["usage"]["prompt_tokens"] == tokens
    assert provider_double.requests[0].prompt_tokens == tokens


def test_special_tokens_in_text_are_counted_as_text(provider_double: ProviderDouble) -> None:
    response = ask(provider_double, "double-8k-cl100k", "<|endoftext|>")

    assert response.json()["usage"]["prompt_tokens"] > 3 + 5 + 1


def test_a_prompt_that_fills_the_window_exactly_is_taken_and_one_token_more_is_not(
    provider_double: ProviderDouble,
) -> None:
    text = "x" * 2 * (8192 - 10 - 100)

    fitting = ask(provider_double, "double-8k-bytes2", text, max_tokens=100)
    refused = ask(provider_double, "double-8k-bytes2", text + "yy", max_tokens=100)

    assert fitting.status_code == 200
    assert refused.status_code == 400
    assert refused.json()["error"] == {
        "message": "This model's maximum context length is 8192 tokens. However, you requested 8193 tokens "
        "(8093 in the messages, 100 in the completion). Please reduce the length of the messages or completion.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    assert [record.verdict for record in provider_double.requests] == [Verdict.ANSWERED, Verdict.OVER_WINDOW]


def test_a_prompt_alone_over_the_window_is_refused_with_what_it_resulted_in(provider_double: ProviderDouble) -> None:
    response = ask(provider_double, "double-600-bytes2", "x" * 2000)

    assert response.json()["error"]["message"] == (
        "This model's maximum context length is 600 tokens. However, your messages resulted in 1010 tokens. "
        "Please reduce the length of the messages."
    )


def test_tools_count_and_are_named_in_the_refusal(provider_double: ProviderDouble) -> None:
    plain = ask(provider_double, "double-600-bytes2", "x" * 500)
    with_tools = ask(provider_double, "double-600-bytes2", "x" * 900, tools=[TOOL], max_tokens=100)

    assert plain.status_code == 200
    tokens = provider_double.requests[1].prompt_tokens
    assert tokens - (3 + 7 + 450) == 20 + 14 + 43
    assert with_tools.json()["error"]["message"].startswith(
        f"This model's maximum context length is 600 tokens. However, you requested {tokens + 100} tokens "
        f"(460 in the messages, {tokens - 460} in the functions, and 100 in the completion)."
    )


def test_an_answer_longer_than_max_tokens_is_cut_and_says_so(provider_double: ProviderDouble) -> None:
    from_start = ask(provider_double, "double-8k-cl100k", "tell me everything", max_tokens=3).json()

    assert from_start["choices"][0]["finish_reason"] == "length"
    assert from_start["usage"]["completion_tokens"] <= 3
