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


def due_triggers(inp: ContextInput, raw_tokens: int) -> tuple[CompactionTrigger, ...]:
    """Return what may trigger a compaction of a prompt of `raw_tokens` by our count, the strongest first.

    Something unread (rows that neither the prompt shows nor a summary stands for) counts as the threshold. N and K
    are looked at when a turn begins, not in its tool loop: a summary that only they ask for waits for the turn's end.
    """
    if _has_to_read(inp):
        return (CompactionTrigger.THRESHOLD,)
    is_over = scale(raw_tokens, inp.factor) > inp.budget.threshold_tokens and not _is_just_restored(inp)
    if not is_summarising(inp):
        return (CompactionTrigger.THRESHOLD,) if is_over and is_reducing(inp) else ()
    counted = None
    if inp.policy.adopt is Adopt.IMMEDIATELY and not inp.own:
        counted = count_trigger(inp, counted_from(inp))
    return tuple(
        trigger for trigger in (CompactionTrigger.THRESHOLD if is_over else None, counted) if trigger is not None
    )


def is_near_threshold(inp: ContextInput, raw_tokens: int) -> bool:
    """Whether a summary should be ready soon: the prompt nears the threshold, and nothing says to wait."""
    if _is_just_restored(inp) or was_skipped(inp):
        return False
    return scale(raw_tokens, inp.factor) > SOFT_MARK_SHARE * inp.budget.threshold_tokens


def is_summarising(inp: ContextInput) -> bool:
    """Whether summaries are made without being asked for."""
    return inp.policy.auto_summarize and inp.policy.strategy is Strategy.SUMMARIZATION


def is_reducing(inp: ContextInput) -> bool:
    """Whether anything is done at the threshold; without automatic summaries only the last ladder is left."""
    return inp.policy.strategy is not Strategy.SUMMARIZATION or inp.policy.auto_summarize


def ahead_tokens(inp: ContextInput) -> float:
    """Return what the prompt may take, in the model's tokens, once a prepared summary is adopted."""
    return inp.budget.threshold_tokens - AHEAD_SHARE * inp.budget.window_tokens


def critical_tokens(inp: ContextInput) -> int:
    """Return the mark, by our count, above which the last ladder cuts what is shown."""
    limit = unscale(inp.budget.budget_tokens, inp.factor)
    if inp.cap_tokens is not None:
        limit = min(limit, inp.cap_tokens)
    return min(unscale(int(inp.policy.prune.critical * inp.budget.window_tokens), inp.factor), limit)


def has_unread(inp: ContextInput) -> bool:
    """Whether messages after the cursor are neither shown nor summarised: not loaded, or trimmed before."""
    return bool(inp.rows) and (inp.has_gap or inp.view_state.trimmed_through_position > inp.summary_through_position)


def summarised_through(inp: ContextInput) -> int:
    """Return the position that the newest summary reaches, prepared, adopted, or tried and not worth it."""
    prepared = 0 if inp.prepared is None else inp.prepared.through_position
    return max(inp.summary_through_position, prepared, inp.view_state.skipped_through_position)


def counted_from(inp: ContextInput) -> int:
    """Return the position after which N and K count: the summary in use, where they bring the next into use at once.

    Else the newest, prepared or in use.
    """
    if inp.policy.adopt is Adopt.IMMEDIATELY:
        return max(inp.summary_through_position, inp.view_state.skipped_through_position)
    return summarised_through(inp)


def messages_since_summary(inp: ContextInput) -> int:
    """Return how many messages N counts, those not loaded and the pending one included."""
    return _messages_since(inp, counted_from(inp))


def tokens_since_summary(inp: ContextInput) -> int:
    """Return our count of the loaded messages that K counts, as stored, and of the pending one."""
    return _tokens_since(inp, counted_from(inp))


def has_grown(inp: ContextInput, raw_tokens: int) -> bool:
    """Whether the prompt has grown by a real share of the window since the last compaction, or had room after it."""
    before = inp.view_state.compacted_to_tokens
    if before is None or scale(before, inp.factor) <= ahead_tokens(inp):
        return True
    return scale(raw_tokens - before, inp.factor) >= GROWTH_SHARE * inp.budget.window_tokens


def was_skipped(inp: ContextInput) -> bool:
    """Whether too little was said since a summary was found not to be worth it."""
    skipped = inp.view_state.skipped_through_position
    return skipped > 0 and not _has_said_much(inp, skipped)


def count_trigger(inp: ContextInput, since: int) -> CompactionTrigger | None:
    """Return which of N messages and K tokens has come, counted from the position `since`."""
    if _messages_since(inp, since) >= inp.policy.max_messages_before_summary:
        return CompactionTrigger.MESSAGES
    if scale(_tokens_since(inp, since), inp.factor) >= inp.policy.max_tokens_before_summary:
        return CompactionTrigger.TOKENS
    return None


def _has_to_read(inp: ContextInput) -> bool:
    """Whether a summary of what no prompt shows is due now, and not put off."""
    return is_summarising(inp) and has_unread(inp) and not (was_skipped(inp) or _is_just_restored(inp))


def _messages_since(inp: ContextInput, since: int) -> int:
    rows = inp.rows
    stored = rows[-1].position - since if rows else 0
    return max(stored, 0) + (inp.user is not None)


def _tokens_since(inp: ContextInput, since: int) -> int:
    name, count = inp.counter_name, inp.count
    stored = sum(tokens_of(row, name, count) for row in inp.rows if row.position > since)
    return stored + (0 if inp.user is None else tokens_of(inp.user, name, count))


def _has_said_much(inp: ContextInput, since: int) -> bool:
    """Whether what was said after the position `since` takes a real share of the window."""
    return scale(_tokens_since(inp, since), inp.factor) >= GROWTH_SHARE * inp.budget.window_tokens


def _is_just_restored(inp: ContextInput) -> bool:
    """Whether a user went back to the summary in use, and too little was said since to write another one over it."""
    restored = inp.view_state.restored_at_position
    return restored > 0 and is_summarising(inp) and not _has_said_much(inp, restored)
