"""Calibration of token counts: learns, from providers' reports, the factor applied to our own counts."""

import asyncio
from dataclasses import replace

import structlog

from throughline.context.budget import make_budget
from throughline.context.calibration import Calibration, factor, learn, learn_overflow, trusted_window
from throughline.context.fit_prompt import FittedPrompt
from throughline.domain.basic_types import Clock
from throughline.domain.errors import ContextOverflow, ThroughlineError
from throughline.domain.message import ImageBlock
from throughline.domain.prompt import Prompt
from throughline.ports.storage import CalibrationStore
from throughline.turn.prompting.ready_agent import PromptDependencies, ReadyAgent

CACHED_SECONDS = 30.0
log = structlog.get_logger(__name__)
WORTH_SAVING = 0.005


async def learn_from_usage(
    dependencies: PromptDependencies, agent: ReadyAgent, fitted: FittedPrompt, *, reported: int
) -> ReadyAgent:
    """Store the ratio of the provider's count to ours for one prompt; return the agent with the new factor.

    Within a turn the factor only grows, because a tool output may fill the window before the turn ends; a lower factor
    applies from the next turn. A prompt with images teaches nothing: models count an image from a tenth of our estimate
    to sixteen times it. A report above the window means that the provider accepted a prompt it should have refused.
    """
    key, model = agent.calibration_key, agent.model.name
    dependencies.metrics.estimate_compared(model=model, estimated=fitted.tokens, reported=reported)
    if reported > agent.budget.window_tokens:
        dependencies.metrics.overflow_met(model=model)
        log.warning(
            "prompt over the configured window accepted by provider",
            model=model,
            reported=reported,
            estimated=fitted.tokens,
        )
    if _holds_images(fitted.prompt):
        return agent
    known = await dependencies.calibrations.load(key)
    learned = learn(known, ours=fitted.raw_tokens, provider=reported, configured_window=_largest(agent))
    await dependencies.calibrations.save(key, learned)
    return _with_factor(agent, learned)


async def learn_from_overflow(
    dependencies: PromptDependencies, agent: ReadyAgent, overflow: ContextOverflow, refused: FittedPrompt
) -> ReadyAgent:
    """Return the agent with the window and factor learned from the provider's refusal of a prompt.

    A window too small to be plausible applies to this turn only, since the next prompt has to be smaller. The factor
    also applies to this turn only if the prompt contained images, which may be the reason for the refusal.
    """
    key, configured = agent.calibration_key, _configured(agent)
    known = await dependencies.calibrations.load(key)
    if _holds_images(refused.prompt):
        learned = _learned_of_overflow(_as_unproven(known), overflow, refused, configured)
        await _keep_window(dependencies, key, known, learned.learned_window)
    else:
        learned = _learned_of_overflow(known, overflow, refused, configured)
        await dependencies.calibrations.save(key, learned)
    named = overflow.window_tokens or configured
    window = max(min(agent.budget.window_tokens, trusted_window(learned, configured), named), 1)
    return replace(_with_factor(agent, learned), budget=make_budget(agent.definition.context, window))


def _learned_of_overflow(
    known: Calibration | None, overflow: ContextOverflow, refused: FittedPrompt, configured_window: int
) -> Calibration:
    return learn_overflow(
        known,
        ours=refused.raw_tokens,
        prompt_tokens=overflow.prompt_tokens,
        window_tokens=overflow.window_tokens,
        configured_window=configured_window,
    )


def _as_unproven(known: Calibration | None) -> Calibration | None:
    """Return the calibration without its samples, so that one refusal may raise the factor as far as any ratio allows.

    What was learned from text says nothing about a prompt with images.
    """
    return None if known is None else replace(known, samples=0)


async def _keep_window(
    dependencies: PromptDependencies, key: str, known: Calibration | None, window: int | None
) -> None:
    """Store the window that a refusal named, and nothing else from it."""
    before = known or Calibration(ratio=1.0, samples=0)
    if window != before.learned_window:
        await dependencies.calibrations.save(key, replace(before, learned_window=window))


def _holds_images(prompt: Prompt) -> bool:
    return any(
        isinstance(block, ImageBlock)
        for message in prompt.messages
        if not isinstance(message.content, str)
        for block in message.content
    )


def _with_factor(agent: ReadyAgent, learned: Calibration) -> ReadyAgent:
    """Return the agent with the learned factor; within a turn the factor only grows."""
    return replace(agent, factor=max(factor(learned, is_known_tokenizer=agent.model.has_known_tokenizer), agent.factor))


def _configured(agent: ReadyAgent) -> int:
    return agent.definition.context.window or agent.model.context_limit


def _largest(agent: ReadyAgent) -> int:
    """Return the larger of the agent's window and the model's.

    Agents share the calibration of a model: the small window of one must not erase what was learned for another.
    """
    return max(_configured(agent), agent.model.context_limit)


class CalibrationCache:
    """Cache of calibrations in memory, so that turns rarely read the database and write only changes."""

    def __init__(self, store: CalibrationStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, tuple[float, Calibration | None]] = {}
        self._saved: dict[str, Calibration | None] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    async def load(self, model: str) -> Calibration | None:
        """Return the model's calibration, None without one. It is at most 30 s older than what is stored."""
        read_at, known = self._known.get(model, (float("-inf"), None))
        if self._clock.monotonic() - read_at < CACHED_SECONDS:
            return known
        known = await self._store.load(model)
        if model in self._writing:  # a calibration learned meanwhile is newer
            return self._known[model][1]
        self._saved[model] = known
        self._known[model] = (self._clock.monotonic(), known)
        return known

    async def save(self, model: str, calibration: Calibration) -> None:
        """Keep the calibration in memory; store it in the background if it changed by more than half a percent."""
        read_at, _ = self._known.get(model, (self._clock.monotonic(), None))
        self._known[model] = (read_at, calibration)
        if _is_worth_saving(self._saved.get(model), calibration) and model not in self._writing:
            self._writing[model] = asyncio.create_task(self._write(model), name="keep a calibration")

    async def _write(self, model: str) -> None:
        """Store the newest calibration; after a failure it is stored with the next change."""
        _, calibration = self._known[model]
        try:
            if calibration is not None:
                await self._store.save(model, calibration)
                self._saved[model] = calibration
        except ThroughlineError as error:
            log.warning("token calibration of model not saved yet", model=model, error=error.code)
        finally:
            del self._writing[model]


def _is_worth_saving(saved: Calibration | None, now: Calibration) -> bool:
    if saved is None or saved.learned_window != now.learned_window:
        return True
    return abs(saved.ratio - now.ratio) > WORTH_SAVING * saved.ratio
