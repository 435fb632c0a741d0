import pytest

from throughline.llm.context_windows import get_context_limit


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("offline", 32_768),
        ("gpt-4", 8192),
        ("openai:gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("openai:gpt-5-mini", 272_000),
        ("o3-pro", 200_000),
        ("anthropic:claude-sonnet-4-5", 200_000),
        ("bedrock:anthropic.claude-3-haiku", 200_000),
        ("google_genai:gemini-2.5-flash", 1_048_576),
        ("openai:meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("openai:qwen2.5:7b", 32_768),
        ("mistralai:mistral-large-latest", 131_072),
        ("deepseek:deepseek-chat", 131_072),
        ("nobody-knows-me", 8192),
    ],
)
def test_the_longest_known_name_decides(model: str, window: int) -> None:
    assert get_context_limit(model) == window


def test_the_models_own_profile_comes_first() -> None:
    assert get_context_limit("gpt-4o", {"max_input_tokens": 64_000}) == 64_000


@pytest.mark.parametrize("profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": 0}])
def test_a_profile_that_says_nothing_is_passed_over(profile: dict[str, object] | None) -> None:
    assert get_context_limit("gpt-4o", profile) == 128_000
