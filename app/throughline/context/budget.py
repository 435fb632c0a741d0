"""How much of a model's window a prompt may use: window, reserve, budget, threshold and target of one agent."""

from dataclasses import dataclass

from throughline.context.policy import ContextPolicy, SummaryPolicy
from throughline.domain.errors import PromptCannotFit

MAX_RESERVE_SHARE = 4
"""Divisor of the window: the reserve is at most a quarter of it, so that a small window still holds a conversation."""

MARK_CAP = 0.95
"""Threshold and target are at most this share of the budget, so that they are exceeded before the budget is."""

MAX_FIXED_SHARE = 0.70
"""Most that system prompt, tools and reserve together may take of the window; beyond it no conversation fits."""

MAX_SUMMARY_SHARE = 0.30
"""Largest share of the budget that a summary may take, whatever `summary.max_tokens` says."""

SUMMARY_SHARE, LEAST_SUMMARY_TOKENS, MOST_SUMMARY_TOKENS = 0.06, 1500, 8000
"""Default size of a summary: a share of the window, with a lower and an upper limit.

Chosen: two pages in a small window. In a window of 128,000 tokens there is room for about 300 kept facts, for which the
provider's prompt cache charges once.
"""

TARGET_BELOW_THRESHOLD = 0.75
"""A target at or above the threshold is lowered to this share of it, because a compaction must free a real part."""

RESULT_SHARE = 0.125
"""Share of the budget for one result of a tool that can choose its size, so that several results fit unshortened."""

BYTES_PER_TOKEN = 6
"""Upper bound of a text's bytes per token on average, for comparing a token count with a limit in bytes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one window in the model's own tokens: target < threshold < budget = window - reserve."""

    window_tokens: int
    reserve_tokens: int
    budget_tokens: int
    threshold_tokens: int
    target_tokens: int


def make_budget(policy: ContextPolicy, window_tokens: int) -> Budget:
    """Return the limits of `policy` in a window of `window_tokens`. Raises PromptCannotFit for a window below 1."""
    if window_tokens < 1:
        raise PromptCannotFit(f"the window is {window_tokens} tokens: set `context.window` to what the model can take")
    reserve = min(policy.response_reserve, window_tokens // MAX_RESERVE_SHARE)
    budget = window_tokens - reserve
    threshold = int(min(policy.usage_threshold * window_tokens, MARK_CAP * budget))
    target = int(min(policy.target_tokens or policy.target * window_tokens, MARK_CAP * budget))
    if target >= threshold:
        target = int(TARGET_BELOW_THRESHOLD * threshold)
    return Budget(
        window_tokens=window_tokens,
        reserve_tokens=reserve,
        budget_tokens=budget,
        threshold_tokens=threshold,
        target_tokens=target,
    )


def check_fits(budget: Budget, system_tokens: int, tools_tokens: int, *, factor: float = 1.0) -> None:
    """Raise PromptCannotFit if system prompt, tools and reserve take more than MAX_FIXED_SHARE of the window.

    The counts are ours; multiplied by `factor` they are the model's.
    """
    fixed = int((system_tokens + tools_tokens) * factor) + budget.reserve_tokens
    allowed = int(MAX_FIXED_SHARE * budget.window_tokens)
    if fixed > allowed:
        raise PromptCannotFit(
            f"system prompt ({system_tokens} tokens), tools ({tools_tokens}) and reserve ({budget.reserve_tokens}) "
            f"take {fixed} of a window of {budget.window_tokens}, more than the {allowed} that leave room to talk: "
            "shorten the system prompt, name fewer tools, or use a model with a larger window"
        )


def result_limit(policy: ContextPolicy, budget: Budget, *, factor: float) -> int:
    """Return how many tokens, by our count, a tool may give one result: RESULT_SHARE of the budget.

    It is less if outputs are shortened above a lower number of bytes.
    """
    share = int(RESULT_SHARE * budget.budget_tokens / factor)
    return max(1, min(share, policy.prune.max_output_bytes // BYTES_PER_TOKEN))


def summary_limit(policy: SummaryPolicy, budget: Budget) -> int:
    """Return the most tokens of a summary, in the model's count: the policy's maximum or the default for the window.

    It is never more than MAX_SUMMARY_SHARE of the budget.
    """
    share = int(SUMMARY_SHARE * budget.window_tokens)
    most = policy.max_tokens or max(LEAST_SUMMARY_TOKENS, min(share, MOST_SUMMARY_TOKENS))
    return max(1, min(most, int(MAX_SUMMARY_SHARE * budget.budget_tokens)))
