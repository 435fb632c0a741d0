"""Checks of the usage that a provider reports: it may be no number, or belong to a silently shortened prompt."""

import re
from collections.abc import Mapping
from dataclasses import replace

import structlog

from throughline.domain.message import text_of
from throughline.domain.prompt import Prompt, Usage

MOST_CHARACTERS_PER_TOKEN = 8
"""Characters per token that no tokenizer exceeds over a whole ordinary prompt; words are counted only beyond it."""

LEAST_SHARE = 0.6
"""Share of the prompt's words below which a count must belong to a shortened prompt: each word is at least one token.
"""

_WORD = re.compile(r"[^\W_]+")
log = structlog.get_logger(__name__)


def is_token_count(value: object) -> bool:
    """Return whether a provider's value is a number of tokens: an integer, and neither text nor a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def token_counts(usage: object) -> dict[str, object] | None:
    """Return the readable part of a provider's usage: integers, and details made of integers; None if there is none."""
    if not isinstance(usage, Mapping):
        return None
    found: dict[str, object] = {}
    for name, value in usage.items():
        if isinstance(value, Mapping) and str(name).endswith("_details"):
            found[name] = {part: count for part, count in value.items() if is_token_count(count)}
        elif is_token_count(value):
            found[name] = value
    return found or None


def checked_usage(usage: Usage, prompt: Prompt, model: str) -> Usage:
    """Return the usage, without the prompt's count if the provider cannot have read the whole prompt.

    Such a count would lower our estimates, so that the next prompt would be even longer. It is logged, because the
    operator has to set another window for the server or the agent.
    """
    reported = usage.input_tokens
    if reported is None or not _is_shortened(prompt, reported):
        return usage
    log.warning("prompt truncated by provider", model=model, reported=reported)
    return replace(usage, input_tokens=None)


def _is_shortened(prompt: Prompt, reported: int) -> bool:
    texts = [prompt.system, *(text_of(message.content) for message in prompt.messages)]
    if reported * MOST_CHARACTERS_PER_TOKEN >= sum(len(text) for text in texts):
        return False
    words = sum(1 for text in texts for _ in _WORD.finditer(text))
    return reported < LEAST_SHARE * words
