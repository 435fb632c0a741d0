"""Asking an agent's `pre_compact` hook, at nobody's cost but its own: it may raise, hang or answer nonsense."""

import asyncio
import functools
from dataclasses import replace

import structlog

from app.domain.errors import SettingInvalid
from app.domain.text import clean_text
from app.execution.operator_code import call_function
from app.execution.outcome import Raised
from app.ports.hooks import Decision, Hook, PreCompact
from app.summary.parts import SummaryParts

HOOK_SECONDS = 5.0
SHARE_OF_LIMIT = 0.5
"""A hook may use this share of a compaction's time at most: the summary itself needs the rest."""

GO_ON = Decision()
log = structlog.get_logger(__name__)


async def ask_hook(parts: SummaryParts, name: str, event: PreCompact, *, limit_seconds: float) -> Decision:
    """Return what the hook `name` decides within its share of `limit_seconds`; to go on, where there is none.

    A hook that failed several times in a row is left alone for a while.
    """
    key = f"pre_compact:{name}"
    if not name or not parts.breakers.may_call(key):
        return GO_ON
    try:
        decision = await _decide(parts.hooks.get(name), event, min(HOOK_SECONDS, SHARE_OF_LIMIT * limit_seconds))
    except asyncio.CancelledError:
        parts.breakers.released(key)
        raise
    except (_HookFailedError, SettingInvalid) as error:
        parts.breakers.failed(key)
        log.warning("pre_compact hook failed", hook=name, error=str(error) if _is_ours(error) else "SettingInvalid")
        return GO_ON
    parts.breakers.succeeded(key)
    return decision


class _HookFailedError(Exception):
    """The hook gave no decision; the text names the class of what happened, never what it said."""


def _is_ours(error: Exception) -> bool:
    return isinstance(error, _HookFailedError)


async def _decide(hook: Hook, event: PreCompact, seconds: float) -> Decision:
    outcome = await call_function(functools.partial(hook, event), seconds)
    if outcome is None:
        raise _HookFailedError("TimeoutError")
    if isinstance(outcome, Raised):
        raise _HookFailedError(type(outcome.error).__name__) from outcome.error
    return _checked(outcome.value)


def _checked(answer: object) -> Decision:
    """Return the decision with its texts cleaned; None means to go on."""
    if answer is None:
        return GO_ON
    if not isinstance(answer, Decision):
        raise _HookFailedError(f"answered {type(answer).__name__}")
    texts: tuple[object, ...] = (answer.instructions, answer.summary)  # what they are is the operator's word only
    if not all(isinstance(text, str) for text in texts):
        raise _HookFailedError("answered a Decision whose texts are none")
    return replace(
        answer,
        cancel=bool(answer.cancel),
        instructions=clean_text(answer.instructions),
        summary=clean_text(answer.summary),
    )
