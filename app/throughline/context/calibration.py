"""Calibration of our token counts to a provider's, so that our count times a factor is never below the provider's.

For each model an upper envelope of the observed ratios is kept. It follows a higher ratio at once and a lower one
slowly, because the next prompt may again contain the kind of text that the provider counts higher.
"""

import math
from dataclasses import dataclass, replace

INITIAL_MARGIN = 0.15
"""Share by which our counts are raised for a model with an unknown tokenizer that has not reported any usage yet."""

KNOWN_MARGIN = 0.03
"""Share by which our counts are raised for a model with a known tokenizer that has not reported any usage yet.

Only the framing of messages can differ from our count.
"""

LEARNED_MARGIN = 0.02
"""Share by which the factor always stays above the learned ratio."""

YOUNG_MARGIN = 0.03
"""Further share by which the factor stays above the learned ratio, divided by the number of samples."""

LOWEST_RATIO, HIGHEST_RATIO = 0.5, 4.0
"""Limits of the ratio: values beyond them come from broken usage reports, not from tokenizers."""

PRIOR_TOKENS = 32
"""Weight, in tokens, of the ratio known before when a prompt's ratio is computed.

It keeps the framing of a tiny prompt from distorting the ratio.
"""

DECAY = 0.1
"""Share of the distance to a lower ratio by which one sample lowers the learned ratio."""

YOUNG_SAMPLES = 4
"""Number of first samples that lower the ratio as fast as they raise it.

The system prompt's share of the tokens falls quickly at the start of a session.
"""

BLIND_STEP = 1.3
"""Growth of the ratio after a refusal that names no number."""

UNPROVEN_STEP = 1.5
"""Largest growth of a known ratio after one refusal: the number in an error may be wrong or made up by a proxy."""

HARDER_STEP = 1.05
"""Smallest growth of the ratio after any refusal: the next prompt has to be smaller."""

LEAST_WINDOW_SHARE = 0.5
"""A learned window below this share of the configured one is rejected: misread, or another model's."""

LOWEST_AGREEMENT, HIGHEST_AGREEMENT = 0.8, 1.25
"""Bounds within which an error's token count is taken to mean our prompt, relative to our own estimate."""

WINDOW_GROWTH = 0.02
"""Growth of a learned window with every accepted prompt; a wrong one is forgotten after about 35 turns."""

STEP = INITIAL_MARGIN - KNOWN_MARGIN
"""Distance between the factors that `stepped` returns: 1.03, 1.15 and so on."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Learned facts about a model's token counting: `ratio` is its count divided by ours.

    `samples` is the number of usage reports and refusals that it was learned from. `learned_window` is the window that
    an error named, None without such an error.
    """

    ratio: float
    samples: int
    learned_window: int | None = None


def learn(calibration: Calibration | None, *, ours: int, provider: int, configured_window: int) -> Calibration:
    """Return the calibration after a prompt of `ours` tokens by our count and `provider` by the provider's report.

    A learned window grows with every accepted prompt. It is forgotten once it reaches `configured_window`, or once a
    larger prompt was accepted.
    """
    if ours <= 0 or provider <= 0:
        return calibration or Calibration(ratio=1.0, samples=0)
    known = calibration or Calibration(ratio=1.0, samples=0)
    seen = _bounded((provider + PRIOR_TOKENS * known.ratio) / (ours + PRIOR_TOKENS))
    window = _grown(known.learned_window, provider, configured_window)
    is_lower = known.samples > 0 and seen < known.ratio
    step = DECAY if is_lower and known.samples >= YOUNG_SAMPLES else 1.0
    ratio = known.ratio + step * (seen - known.ratio)
    return replace(known, ratio=ratio, samples=known.samples + 1, learned_window=window)


def learn_overflow(
    calibration: Calibration | None,
    *,
    ours: int,
    prompt_tokens: int | None,
    window_tokens: int | None,
    configured_window: int,
) -> Calibration:
    """Return the calibration after the provider refused a prompt of `ours` tokens as too long.

    `prompt_tokens` and `window_tokens` are the numbers in its error, None if it names none. The ratio grows with each
    refusal, up to HIGHEST_RATIO, so that the next prompt is smaller whatever the error said. A window is accepted if it
    is plausible compared with `configured_window` and the error's count of the prompt agrees with ours. A refusal never
    enlarges the learned window.
    """
    known = calibration or Calibration(ratio=1.0, samples=0)
    named = window_tokens if _agrees(known, ours, prompt_tokens) else None
    if named is not None and not _is_plausible(named, configured_window):
        named = None
    ratio = max(_seen_ratio(known, ours, prompt_tokens, named), HARDER_STEP * known.ratio)
    if known.samples > 0:
        ratio = min(ratio, UNPROVEN_STEP * known.ratio)
    window = known.learned_window if named is None else min(named, known.learned_window or named)
    return replace(known, ratio=_bounded(ratio), samples=known.samples + 1, learned_window=window)


def trusted_window(calibration: Calibration | None, configured_window: int) -> int:
    """Return the window to use: the learned one if it is smaller than the configured one but not implausibly small.

    Otherwise it is the configured one.
    """
    learned = None if calibration is None else calibration.learned_window
    return learned if learned is not None and _is_plausible(learned, configured_window) else configured_window


def factor(calibration: Calibration | None, *, is_known_tokenizer: bool) -> float:
    """Return the factor by which our counts are multiplied before they are compared with the model's window.

    It is the learned ratio plus a margin; before any usage was reported, 1 plus a margin.
    """
    if calibration is None or calibration.samples == 0:
        return 1 + (KNOWN_MARGIN if is_known_tokenizer else INITIAL_MARGIN)
    return calibration.ratio * (1 + LEARNED_MARGIN + YOUNG_MARGIN / calibration.samples)


def stepped(by: float) -> float:
    """Return a factor rounded up to the next step, so that requests made with it change only if it moves far."""
    first = 1 + KNOWN_MARGIN
    return round(first + math.ceil((by - first) / STEP - 1e-9) * STEP, 6)


def scale(tokens: int, by: float) -> int:
    """Return our count converted to the model's, rounded up."""
    return math.ceil(tokens * by - 1e-9)


def unscale(tokens: int, by: float) -> int:
    """Return the largest count of ours that the model counts as at most `tokens`."""
    ours = max(int(tokens / by), 0)
    while ours > 0 and scale(ours, by) > tokens:
        ours -= 1
    return ours


def _seen_ratio(known: Calibration, ours: int, prompt_tokens: int | None, window_tokens: int | None) -> float:
    if prompt_tokens is not None and ours > 0:
        return prompt_tokens / ours
    if window_tokens is not None and ours > 0:
        return max(known.ratio, window_tokens / ours) * HARDER_STEP
    return known.ratio * BLIND_STEP


def _is_plausible(window: int, configured_window: int) -> bool:
    return LEAST_WINDOW_SHARE * configured_window <= window < configured_window


def _agrees(known: Calibration, ours: int, prompt_tokens: int | None) -> bool:
    """Return whether the error's count can mean our prompt; True if the error names no count."""
    if prompt_tokens is None:
        return True
    estimate = ours * known.ratio
    return LOWEST_AGREEMENT * estimate <= prompt_tokens <= HIGHEST_AGREEMENT * estimate


def _grown(window: int | None, accepted: int, configured_window: int) -> int | None:
    if window is None or accepted > window:
        return None
    grown = math.ceil(window * (1 + WINDOW_GROWTH))
    return grown if grown < configured_window else None


def _bounded(ratio: float) -> float:
    return min(max(ratio, LOWEST_RATIO), HIGHEST_RATIO)
