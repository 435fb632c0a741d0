"""Looks at the usage a provider reports: it may be no number, or of a prompt that the server shortened in silence."""

import re
from collections.abc import Mapping
from dataclasses import replace

import structlog

from throughline.domain.message import text_of
from throughline.domain.prompt import Prompt, Usage

MOST_CHARACTERS_PER_TOKEN = 8
"""No tokenizer finds longer tokens than this in a whole prompt of ordinary text; only below it are words counted."""

LEAST_SHARE = 0.6
"""A count below this share of the prompt's words is of another prompt: every word is a token at least."""

_WORD = re.compile(r"[^\W_]+")
log = structlog.get_logger(__name__)


def is_token_count(value: object) -> bool:
    """Whether a provider's value is a number of tokens: whole, and neither text nor true."""
    return isinstance(value, int) and not isinstance(value, bool)


def token_counts(usage: object) -> dict[str, object] | None:
    """Return a provider's usage with what can be read of it: whole numbers, and details of such; None if nothing."""
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
    """Return the usage, without the count of a prompt that the provider cannot have read whole.

    Such a count would teach us that the provider counts lower than we do, so that the next prompt would be longer
    still. It is logged: whoever runs the server has to give it, or the agent, another window.
    """
    reported = usage.input_tokens
    if reported is None or not _is_shortened(prompt, reported):
        return usage
    log.warning("prompt was shortened by the provider", model=model, reported=reported)
    return replace(usage, input_tokens=None)


def _is_shortened(prompt: Prompt, reported: int) -> bool:
    texts = [prompt.system, *(text_of(message.content) for message in prompt.messages)]
    if reported * MOST_CHARACTERS_PER_TOKEN >= sum(len(text) for text in texts):
        return False
    words = sum(1 for text in texts for _ in _WORD.finditer(text))
    return reported < LEAST_SHARE * words
