"""What a model's tokens and window are, asked from a script of one's own."""

import pytest

from throughline.client.tokens import count_tokens, get_context_limit

TEXT = "We ship on 14 May. 我们五月十四日发货"


@pytest.mark.parametrize(
    ("model", "tokens", "window"),
    [
        ("openai:gpt-4o", 14, 128_000),
        ("azure_openai:gpt-5-mini", 14, 272_000),
        ("openrouter:openai/gpt-oss-20b", 14, 131_072),
        ("openai:gpt-4", 17, 8192),
        ("openai:ft:gpt-4o-2024-08-06:acme::id", 14, 128_000),
        ("somewhere:else", 17, 8192),
    ],
)
def test_a_model_has_its_own_count_and_window(model: str, tokens: int, window: int) -> None:
    assert count_tokens(TEXT, model) == tokens
    assert get_context_limit(model) == window


def test_no_model_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_LLM", "openai:gpt-4o")

    assert (count_tokens(TEXT), get_context_limit()) == (14, 128_000)


def test_a_special_token_is_counted_as_plain_text() -> None:
    assert count_tokens("<|endoftext|>", "openai:gpt-4o") > 1
