"""Learning how a model's provider counts, so that our counts times a factor are never below its own.

What is kept per model is an upper envelope of the ratios seen: it follows a higher ratio at once and a lower one
slowly, because the next prompt may again hold the kind of text that the provider counts higher.
"""

import math
from dataclasses import dataclass, replace

INITIAL_MARGIN = 0.15
"""Margin for a model whose tokenizer we do not know, before it has reported any usage."""

KNOWN_MARGIN = 0.03
"""The same for a known tokenizer: only framing can differ."""

LEARNED_MARGIN = 0.02
"""Margin above the learned ratio that never goes away."""

YOUNG_MARGIN = 0.03
"""Further margin above the learned ratio, divided by the number of samples."""

LOWEST_RATIO, HIGHEST_RATIO = 0.5, 4.0
"""Ratios beyond these come from broken usage reports, not from tokenizers."""

PRIOR_TOKENS = 32
"""Weight of what was known before, in tokens: the framing of a tiny prompt must not pass for a ratio."""

DECAY = 0.1
"""How much of the way down to a lower ratio one sample goes."""

YOUNG_SAMPLES = 4
"""The first samples are followed down as fast as up: the system prompt's share falls quickly at a session's start."""

BLIND_STEP = 1.3
"""Growth of the ratio after a refusal that names no number."""

UNPROVEN_STEP = 1.5
"""Most growth of a known ratio after one refusal: an error's number may be wrong, or a proxy's invention."""

HARDER_STEP = 1.05
"""Least growth of the ratio after any refusal: the next prompt has to be smaller."""

LEAST_WINDOW_SHARE = 0.5
"""A learned window below this share of the configured one is a misread number or another model's."""

LOWEST_AGREEMENT, HIGHEST_AGREEMENT = 0.8, 1.25
"""An error speaks of our prompt where its count lies between these shares of our own estimate."""

WINDOW_GROWTH = 0.02
"""Growth of a learned window with every accepted prompt: what was believed wrongly is forgotten in some 35 turns."""

STEP = INITIAL_MARGIN - KNOWN_MARGIN
"""Between the factors of `stepped`, which are 1.03, 1.15 and so on. See there."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known of a model's counting: `ratio` is its count by ours, `learned_window` what an error named."""

    ratio: float
    samples: int
    learned_window: int | None = None


def learn(calibration: Calibration | None, *, ours: int, provider: int, configured_window: int) -> Calibration:
    """Return the calibration after a prompt of `ours` tokens by our count and `provider` by the provider's report.

    A learned window grows back with every accepted prompt, and is forgotten once it has reached `configured_window`
    or a prompt larger than it was accepted.
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

    `prompt_tokens` and `window_tokens` are what its error named. The ratio always grows, so that the next prompt is
    smaller whatever the error said. A window is believed where it is plausible beside `configured_window` and the
    error's count of the prompt agrees with ours; a refusal only shrinks it.
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
    """Return the window to work with: the learned one where it is plausible, else the configured one."""
    learned = None if calibration is None else calibration.learned_window
    return learned if learned is not None and _is_plausible(learned, configured_window) else configured_window


def factor(calibration: Calibration | None, *, is_known_tokenizer: bool) -> float:
    """Return what our counts are multiplied by before they are held against the model's window."""
    if calibration is None or calibration.samples == 0:
        return 1 + (KNOWN_MARGIN if is_known_tokenizer else INITIAL_MARGIN)
    return calibration.ratio * (1 + LEARNED_MARGIN + YOUNG_MARGIN / calibration.samples)


def stepped(by: float) -> float:
    """Return a factor rounded up to the next step: what is asked for with it stays the same while it moves little."""
    first = 1 + KNOWN_MARGIN
    return round(first + math.ceil((by - first) / STEP - 1e-9) * STEP, 6)


def scale(tokens: int, by: float) -> int:
    """Return our count as the model's, rounded up."""
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
    """Whether the error's count can be of our prompt; one that names none cannot disagree."""
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
