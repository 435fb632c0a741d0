"""Model names that are only like one of the table of windows: told apart from versions and variants of a family."""

import pytest

from throughline.llm.context_windows import WINDOWS, find_window


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("gpt-4oo", "gpt-4o"), ("openai:gpt-4oo", "gpt-4o"), ("gpt-42", "gpt-4"), ("claudee-3", "claude")],
)
def test_a_name_that_goes_on_within_the_word_is_told_with_its_neighbour(name: str, neighbour: str) -> None:
    assert find_window(name).neighbour == neighbour


@pytest.mark.parametrize(
    "name",
    [
        *WINDOWS,
        "gpt-4o-mini",
        "gpt-4o-2024-11-20",
        "gemma2:9b",
        "gemma3n:e4b",
        "glm-4v",
        "qwen2",
        "o3-pro",
        "mistralai/Ministral-8B-Instruct",
        "mistralai/unheard-of-7b",
        "ft:gpt-4o:acme",
        "bedrock:anthropic.claude-3-5-sonnet",
        "meta-llama/Llama-3.1-8B-Instruct",
    ],
)
def test_a_version_or_variant_of_a_family_is_no_misspelling(name: str) -> None:
    assert find_window(name).neighbour == ""
