"""When a conversation is to be compacted or a summary prepared, and why."""

from enum import StrEnum

from app.context.calibration import scale
from app.context.context_input import ContextInput
from app.context.measure import tokens_of
from app.context.policy import Adopt, Strategy

GROWTH_SHARE = 0.20
"""After a compaction the prompt has to grow by this share of the window before the threshold counts again."""

AHEAD_SHARE = 0.10
"""Adopting a prepared summary leaves at least this share of the window below the threshold: half of what writing one
leaves, as it costs no turn any time and the next one is prepared at once."""

SOFT_MARK_SHARE = 0.85
"""A summary is prepared once the prompt has come this far on its way to the threshold."""


class Cause(StrEnum):
    """Why a conversation is compacted: threshold, N messages, K tokens, a user's wish, the provider's refusal."""

    THRESHOLD = "threshold"
    MESSAGES = "messages"
    TOKENS = "tokens"
    MANUAL = "manual"
    OVERFLOW = "overflow"


def compaction_cause(inp: ContextInput, raw_tokens: int) -> Cause | None:
    """Return why room has to be made now for a prompt of `raw_tokens` by our count, None where it has not."""
    if _has_to_read(inp):
        return Cause.THRESHOLD
    if scale(raw_tokens, inp.factor) > inp.budget.threshold_tokens and _has_grown(inp, raw_tokens):
        return Cause.THRESHOLD if is_reducing(inp) else None
    if not is_summarising(inp) or inp.policy.adopt is not Adopt.IMMEDIATELY:
        return None
    return _count_cause(inp, max(inp.summary_through_position, inp.view_state.skipped_through_position))


def prepare_cause(inp: ContextInput, raw_tokens: int) -> Cause | None:
    """Return why the next summary should be written in the background, None where it need not be."""
    if not is_summarising(inp) or inp.policy.adopt is not Adopt.AT_THRESHOLD:
        return None
    counted = _count_cause(inp, summarised_through(inp))
    if counted is not None:
        return counted
    is_near = scale(raw_tokens, inp.factor) > SOFT_MARK_SHARE * inp.budget.threshold_tokens
    return Cause.THRESHOLD if is_near and _is_behind(inp) and _has_grown(inp, raw_tokens) else None


def is_summarising(inp: ContextInput) -> bool:
    """Whether summaries are made without being asked for."""
    return inp.policy.auto_summarize and inp.policy.strategy is Strategy.SUMMARIZATION


def is_reducing(inp: ContextInput) -> bool:
    """Whether anything is done at the threshold; without automatic summaries only the last ladder is left."""
    return inp.policy.strategy is not Strategy.SUMMARIZATION or inp.policy.auto_summarize


def ahead_tokens(inp: ContextInput) -> float:
    """Return what the prompt may take, in the model's tokens, once a prepared summary is adopted."""
    return inp.budget.threshold_tokens - AHEAD_SHARE * inp.budget.window_tokens


def has_unread(inp: ContextInput) -> bool:
    """Whether messages after the cursor are neither shown nor summarised: not loaded, or trimmed before."""
    return bool(inp.rows) and (inp.has_gap or inp.view_state.trimmed_through_position > inp.summary_through_position)


def summarised_through(inp: ContextInput) -> int:
    """Return the position that the newest summary reaches, prepared, adopted, or tried and not worth it."""
    prepared = 0 if inp.prepared is None else inp.prepared.through_position
    return max(inp.summary_through_position, prepared, inp.view_state.skipped_through_position)


def messages_since_summary(inp: ContextInput) -> int:
    """Return how many messages lie after the newest summary, those not loaded and the pending one included."""
    return _messages_since(inp, summarised_through(inp))


def tokens_since_summary(inp: ContextInput) -> int:
    """Return our count of the loaded messages after the newest summary, as stored, and of the pending one."""
    return _tokens_since(inp, summarised_through(inp))


def _has_to_read(inp: ContextInput) -> bool:
    """Whether a summary of what no prompt shows is due now, and not put off."""
    return is_summarising(inp) and has_unread(inp) and not (_was_skipped(inp) or _is_just_restored(inp))


def _count_cause(inp: ContextInput, since: int) -> Cause | None:
    """Return which of N messages and K tokens has come, counted from the position `since`."""
    if _messages_since(inp, since) >= inp.policy.max_messages_before_summary:
        return Cause.MESSAGES
    if scale(_tokens_since(inp, since), inp.factor) >= inp.policy.max_tokens_before_summary:
        return Cause.TOKENS
    return None


def _messages_since(inp: ContextInput, since: int) -> int:
    rows = inp.rows
    stored = rows[-1].position - since if rows else 0
    return max(stored, 0) + (inp.user is not None)


def _tokens_since(inp: ContextInput, since: int) -> int:
    name, count = inp.counter_name, inp.count
    stored = sum(tokens_of(row, name, count) for row in inp.rows if row.position > since)
    return stored + (0 if inp.user is None else tokens_of(inp.user, name, count))


def _was_skipped(inp: ContextInput) -> bool:
    """Whether nothing was said since a summary was found not to be worth it."""
    return bool(inp.rows) and inp.rows[-1].position <= inp.view_state.skipped_through_position


def _has_grown(inp: ContextInput, raw_tokens: int) -> bool:
    before = inp.view_state.compacted_to_tokens
    if _is_just_restored(inp):
        return False
    if before is None or scale(before, inp.factor) <= ahead_tokens(inp):
        return True
    return scale(raw_tokens - before, inp.factor) >= GROWTH_SHARE * inp.budget.window_tokens


def _is_just_restored(inp: ContextInput) -> bool:
    """Whether a user went back to the summary in use, and too little was said since to write another one over it."""
    restored = inp.view_state.restored_at_position
    if not restored or not is_summarising(inp):
        return False
    return scale(_tokens_since(inp, restored), inp.factor) < GROWTH_SHARE * inp.budget.window_tokens


def _is_behind(inp: ContextInput) -> bool:
    """Whether no summary was written ahead, or much has been said since one was, or was found not to be worth it."""
    if summarised_through(inp) <= inp.summary_through_position:
        return True
    return scale(tokens_since_summary(inp), inp.factor) >= GROWTH_SHARE * inp.budget.window_tokens
