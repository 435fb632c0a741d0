"""The triggers of a compaction; whether one is worth it is decided in `decide_compaction`."""

from enum import StrEnum

from throughline.context.calibration import scale, unscale
from throughline.context.context_input import ContextInput
from throughline.context.measure import tokens_of
from throughline.context.policy import Adopt, Strategy

GROWTH_SHARE = 0.20
"""After a compaction that left little room the prompt has to grow by this share of the window before the threshold
counts again, unless as much can be freed at once."""

AHEAD_SHARE = 0.10
"""Adopting a prepared summary leaves at least this share of the window below the threshold: half of what writing one
leaves, as it costs no turn any time and the next one is prepared at once."""

SOFT_MARK_SHARE = 0.85
"""A summary is prepared once the prompt has come this far on its way to the threshold."""


class CompactionTrigger(StrEnum):
    """What triggers a compaction: threshold, N messages, K tokens, a user's wish, the provider's refusal."""

    THRESHOLD = "threshold"
    MESSAGES = "messages"
    TOKENS = "tokens"
    MANUAL = "manual"
    OVERFLOW = "overflow"


def due_triggers(context_input: ContextInput, raw_tokens: int) -> tuple[CompactionTrigger, ...]:
    """Return what may trigger a compaction of a prompt of `raw_tokens` by our count, the strongest first.

    Something unread (rows that neither the prompt shows nor a summary stands for) counts as the threshold. N and K
    are looked at when a turn begins, not in its tool loop: a summary that only they ask for waits for the turn's end.
    """
    if _has_to_read(context_input):
        return (CompactionTrigger.THRESHOLD,)
    is_over = scale(raw_tokens, context_input.factor) > context_input.budget.threshold_tokens and not _is_just_restored(
        context_input
    )
    if not is_summarising(context_input):
        return (CompactionTrigger.THRESHOLD,) if is_over and is_reducing(context_input) else ()
    counted = None
    if context_input.policy.adopt is Adopt.IMMEDIATELY and not context_input.own:
        counted = count_trigger(context_input, counted_from(context_input))
    return tuple(
        trigger for trigger in (CompactionTrigger.THRESHOLD if is_over else None, counted) if trigger is not None
    )


def is_near_threshold(context_input: ContextInput, raw_tokens: int) -> bool:
    """Whether a summary should be ready soon: the prompt nears the threshold, and nothing says to wait."""
    if _is_just_restored(context_input) or was_skipped(context_input):
        return False
    return scale(raw_tokens, context_input.factor) > SOFT_MARK_SHARE * context_input.budget.threshold_tokens


def is_summarising(context_input: ContextInput) -> bool:
    """Whether summaries are made without being asked for."""
    return context_input.policy.auto_summarize and context_input.policy.strategy is Strategy.SUMMARIZATION


def is_reducing(context_input: ContextInput) -> bool:
    """Whether anything is done at the threshold; without automatic summaries only the last ladder is left."""
    return context_input.policy.strategy is not Strategy.SUMMARIZATION or context_input.policy.auto_summarize


def ahead_tokens(context_input: ContextInput) -> float:
    """Return what the prompt may take, in the model's tokens, once a prepared summary is adopted."""
    return context_input.budget.threshold_tokens - AHEAD_SHARE * context_input.budget.window_tokens


def critical_tokens(context_input: ContextInput) -> int:
    """Return the mark, by our count, above which the last ladder cuts what is shown."""
    limit = unscale(context_input.budget.budget_tokens, context_input.factor)
    if context_input.cap_tokens is not None:
        limit = min(limit, context_input.cap_tokens)
    return min(
        unscale(int(context_input.policy.prune.critical * context_input.budget.window_tokens), context_input.factor),
        limit,
    )


def has_skipped(context_input: ContextInput) -> bool:
    """Whether messages after the cursor are neither shown nor summarised: not loaded, or trimmed before."""
    return bool(context_input.rows) and (
        context_input.has_gap
        or context_input.view_state.trimmed_through_position > context_input.summary_through_position
    )


def summarised_through(context_input: ContextInput) -> int:
    """Return the position that the newest summary reaches, prepared, adopted, or tried and not worth it."""
    prepared = 0 if context_input.prepared is None else context_input.prepared.through_position
    return max(context_input.summary_through_position, prepared, context_input.view_state.skipped_through_position)


def counted_from(context_input: ContextInput) -> int:
    """Return the position after which N and K count: the summary in use, where they bring the next into use at once.

    Else the newest, prepared or in use.
    """
    if context_input.policy.adopt is Adopt.IMMEDIATELY:
        return max(context_input.summary_through_position, context_input.view_state.skipped_through_position)
    return summarised_through(context_input)


def messages_since_summary(context_input: ContextInput) -> int:
    """Return how many messages N counts, those not loaded and the pending one included."""
    return _messages_since(context_input, counted_from(context_input))


def tokens_since_summary(context_input: ContextInput) -> int:
    """Return our count of the loaded messages that K counts, as stored, and of the pending one."""
    return _tokens_since(context_input, counted_from(context_input))


def has_grown(context_input: ContextInput, raw_tokens: int) -> bool:
    """Whether the prompt has grown by a real share of the window since the last compaction, or had room after it."""
    before = context_input.view_state.compacted_to_tokens
    if before is None or scale(before, context_input.factor) <= ahead_tokens(context_input):
        return True
    return scale(raw_tokens - before, context_input.factor) >= GROWTH_SHARE * context_input.budget.window_tokens


def was_skipped(context_input: ContextInput) -> bool:
    """Whether too little was said since a summary was found not to be worth it."""
    skipped = context_input.view_state.skipped_through_position
    return skipped > 0 and not _has_said_much(context_input, skipped)


def count_trigger(context_input: ContextInput, since: int) -> CompactionTrigger | None:
    """Return which of N messages and K tokens has come, counted from the position `since`."""
    if _messages_since(context_input, since) >= context_input.policy.max_messages_before_summary:
        return CompactionTrigger.MESSAGES
    if (
        scale(_tokens_since(context_input, since), context_input.factor)
        >= context_input.policy.max_tokens_before_summary
    ):
        return CompactionTrigger.TOKENS
    return None


def _has_to_read(context_input: ContextInput) -> bool:
    """Whether a summary of what no prompt shows is due now, and not put off."""
    return (
        is_summarising(context_input)
        and has_skipped(context_input)
        and not (was_skipped(context_input) or _is_just_restored(context_input))
    )


def _messages_since(context_input: ContextInput, since: int) -> int:
    rows = context_input.rows
    stored = rows[-1].position - since if rows else 0
    return max(stored, 0) + (context_input.user is not None)


def _tokens_since(context_input: ContextInput, since: int) -> int:
    name, count = context_input.counter_name, context_input.count
    stored = sum(tokens_of(row, name, count) for row in context_input.rows if row.position > since)
    return stored + (0 if context_input.user is None else tokens_of(context_input.user, name, count))


def _has_said_much(context_input: ContextInput, since: int) -> bool:
    """Whether what was said after the position `since` takes a real share of the window."""
    return (
        scale(_tokens_since(context_input, since), context_input.factor)
        >= GROWTH_SHARE * context_input.budget.window_tokens
    )


def _is_just_restored(context_input: ContextInput) -> bool:
    """Whether a user went back to the summary in use, and too little was said since to write another one over it."""
    restored = context_input.view_state.restored_at_position
    return restored > 0 and is_summarising(context_input) and not _has_said_much(context_input, restored)
