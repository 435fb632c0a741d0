"""The triggers of a compaction. Whether a triggered compaction is worthwhile is decided in `decide_compaction`."""

from enum import StrEnum

from throughline.context.calibration import scale, unscale
from throughline.context.measure import tokens_of
from throughline.context.policy import Adopt, Strategy
from throughline.context.view.context_input import ContextInput

GROWTH_SHARE = 0.20
"""Share of the window that a prompt has to grow before the threshold counts again.

It applies after a compaction that left little room, unless as much can be freed at once.
"""

AHEAD_SHARE = 0.10
"""Share of the window that must remain below the threshold after a prepared summary is adopted.

It is half of GROWTH_SHARE: adopting a summary costs a turn no time, and the next one is prepared at once.
"""

SOFT_MARK_SHARE = 0.85
"""Share of the threshold above which the next summary is prepared."""

WINDOWS_LOADED = 2
"""Windows of messages after the summary that a turn loads; K counts no message that is not loaded."""


class CompactionTrigger(StrEnum):
    """What triggers a compaction: the threshold, N messages, K tokens, a user's request, the provider's refusal."""

    THRESHOLD = "threshold"
    MESSAGES = "messages"
    TOKENS = "tokens"
    MANUAL = "manual"
    OVERFLOW = "overflow"


def due_triggers(context_input: ContextInput, raw_tokens: int) -> tuple[CompactionTrigger, ...]:
    """Return the triggers that apply to a prompt of `raw_tokens` by our count, the strongest first; () if none does.

    Messages that are neither in the prompt nor in a summary count as THRESHOLD. The limits of messages (N) and tokens
    (K) are checked with `adopt: immediately` only. They are checked when a turn begins, not in its tool loop: a summary
    that only they trigger waits for the end of the turn.
    """
    if _must_summarise_hidden(context_input):
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
    """Return whether the next summary should be prepared because the prompt is near the threshold.

    False if the summary was just restored, or one was found not worth writing and little was said since.
    """
    if _is_just_restored(context_input) or is_summary_skipped(context_input):
        return False
    return scale(raw_tokens, context_input.factor) > SOFT_MARK_SHARE * context_input.budget.threshold_tokens


def is_summarising(context_input: ContextInput) -> bool:
    """Return whether the agent's summaries are written automatically."""
    return context_input.policy.auto_summarize and context_input.policy.strategy is Strategy.SUMMARIZATION


def is_reducing(context_input: ContextInput) -> bool:
    """Return whether the agent's strategy makes a prompt over the threshold smaller.

    It does not with the strategy `summarization` without automatic summaries: then only the last stages reduce the
    prompt.
    """
    return context_input.policy.strategy is not Strategy.SUMMARIZATION or context_input.policy.auto_summarize


def ahead_tokens(context_input: ContextInput) -> float:
    """Return the largest prompt, in the model's tokens, that adopting a prepared summary should leave."""
    return context_input.budget.threshold_tokens - AHEAD_SHARE * context_input.budget.window_tokens


def critical_tokens(context_input: ContextInput) -> int:
    """Return the size of the prompt, by our count, above which the last stages cut it."""
    limit = unscale(context_input.budget.budget_tokens, context_input.factor)
    if context_input.cap_tokens is not None:
        limit = min(limit, context_input.cap_tokens)
    return min(
        unscale(int(context_input.policy.prune.critical * context_input.budget.window_tokens), context_input.factor),
        limit,
    )


def reducing_tokens(context_input: ContextInput) -> int:
    """Return the size of the prompt, in the model's tokens, above which it is made smaller.

    It is the threshold; without automatic summaries the strategy `summarization` does nothing there, and it is the size
    above which the last stages cut.
    """
    if is_reducing(context_input):
        return context_input.budget.threshold_tokens
    return scale(critical_tokens(context_input), context_input.factor)


def has_hidden_messages(context_input: ContextInput) -> bool:
    """Return whether messages after the cursor are neither shown nor summarised: not loaded, or trimmed before."""
    return bool(context_input.rows) and (
        context_input.has_gap
        or context_input.view_state.trimmed_through_position > context_input.summary_through_position
    )


def summarised_through(context_input: ContextInput) -> int:
    """Return the position up to which messages need no summary.

    It is where the newest summary ends, prepared or adopted, or the end of messages not worth summarising.
    """
    prepared = 0 if context_input.prepared is None else context_input.prepared.through_position
    return max(context_input.summary_through_position, prepared, context_input.view_state.skipped_through_position)


def counted_from(context_input: ContextInput) -> int:
    """Return the position after which N messages and K tokens are counted.

    With `adopt: immediately` it is the end of the summary in use; else the end of the newest summary, prepared or in
    use. If a later summary was found not worth writing, it is the newest message at that time.
    """
    if context_input.policy.adopt is Adopt.IMMEDIATELY:
        return max(context_input.summary_through_position, context_input.view_state.skipped_through_position)
    return summarised_through(context_input)


def messages_since_summary(context_input: ContextInput) -> int:
    """Return how many messages followed the newest summary; the policy's limit N applies to this number.

    It includes messages that are not loaded, and the user's message that is not stored yet.
    """
    return _messages_since(context_input, counted_from(context_input))


def tokens_since_summary(context_input: ContextInput) -> int:
    """Return our count of the messages after the newest summary, as they are stored; the policy's limit K applies.

    It includes the user's message that is not stored yet, but no message that is not loaded.
    """
    return _tokens_since(context_input, counted_from(context_input))


def has_grown(context_input: ContextInput, raw_tokens: int) -> bool:
    """Return whether the threshold counts again after the last compaction.

    True if the prompt has grown by GROWTH_SHARE since, if that compaction left enough room, or if there was none.
    """
    before = context_input.view_state.compacted_to_tokens
    if before is None or scale(before, context_input.factor) <= ahead_tokens(context_input):
        return True
    return scale(raw_tokens - before, context_input.factor) >= GROWTH_SHARE * context_input.budget.window_tokens


def is_summary_skipped(context_input: ContextInput) -> bool:
    """Return whether a summary was found not worth writing and too few tokens were added since."""
    skipped = context_input.view_state.skipped_through_position
    return skipped > 0 and not _has_grown_since(context_input, skipped)


def count_trigger(context_input: ContextInput, since: int) -> CompactionTrigger | None:
    """Return MESSAGES or TOKENS if N messages or K tokens follow the position `since`; else None."""
    if _messages_since(context_input, since) >= context_input.policy.max_messages_before_summary:
        return CompactionTrigger.MESSAGES
    if (
        scale(_tokens_since(context_input, since), context_input.factor)
        >= context_input.policy.max_tokens_before_summary
    ):
        return CompactionTrigger.TOKENS
    return None


def _must_summarise_hidden(context_input: ContextInput) -> bool:
    """Return whether a summary of messages that no prompt shows is due now, and not postponed."""
    return (
        is_summarising(context_input)
        and has_hidden_messages(context_input)
        and not (is_summary_skipped(context_input) or _is_just_restored(context_input))
    )


def _messages_since(context_input: ContextInput, since: int) -> int:
    rows = context_input.rows
    stored = rows[-1].position - since if rows else 0
    return max(stored, 0) + (context_input.user is not None)


def _tokens_since(context_input: ContextInput, since: int) -> int:
    name, count = context_input.counter_name, context_input.count
    stored = sum(tokens_of(row, name, count) for row in context_input.rows if row.position > since)
    return stored + (0 if context_input.user is None else tokens_of(context_input.user, name, count))


def _has_grown_since(context_input: ContextInput, since: int) -> bool:
    """Return whether the messages after the position `since` take at least GROWTH_SHARE of the window."""
    return (
        scale(_tokens_since(context_input, since), context_input.factor)
        >= GROWTH_SHARE * context_input.budget.window_tokens
    )


def _is_just_restored(context_input: ContextInput) -> bool:
    """Return whether a user restored the summary in use, and too few tokens followed to write another one over it."""
    restored = context_input.view_state.restored_at_position
    return restored > 0 and is_summarising(context_input) and not _has_grown_since(context_input, restored)


def tokens_since_restore(context_input: ContextInput) -> int | None:
    """Return the model's tokens that followed a restore; None if no summary was restored, or enough tokens followed."""
    if not _is_just_restored(context_input):
        return None
    return scale(_tokens_since(context_input, context_input.view_state.restored_at_position), context_input.factor)


def can_reach_tokens(context_input: ContextInput) -> bool:
    """Return whether the loaded messages can reach the policy's limit K. A huge single message may do so regardless."""
    most = scale(WINDOWS_LOADED * context_input.budget.window_tokens, context_input.factor)
    return context_input.policy.max_tokens_before_summary <= most
