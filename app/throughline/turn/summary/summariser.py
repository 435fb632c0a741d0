"""The models that write summaries: which ones an agent has, and how large their requests and answers may be."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from throughline.context.budget import summary_limit
from throughline.context.calibration import factor, scale, stepped, trusted_window, unscale
from throughline.context.policy import SummaryKind, SummaryPolicy
from throughline.context.summaries.check_summary import SummaryRejected
from throughline.context.summaries.keep_lines import KEEP_TOKENS
from throughline.context.summaries.segment_ends import first_segment
from throughline.context.summaries.summary_prompt import (
    SMALLEST_BUDGET,
    chunk_for_summariser,
    guidance_of,
    summary_request,
)
from throughline.domain.message import Message, text_of
from throughline.domain.prompt import Prompt
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.ports.models import ChatModel
from throughline.turn.prompting.ready_agent import ReadyAgent, calibration_key, named_summary_model
from throughline.turn.summary.dependencies import SummaryDependencies

LEAST_WINDOW, SMALL_WINDOW_PARTS = 3000, 16
"""Least window in tokens for which lines below `KEEP:` are requested; the divisor of a window for their tokens."""

SLACK_TOKENS = 64
"""Tokens kept free in a request, because the whole may count more tokens than its parts do."""

INSTRUCTION_SHARE = 1 / 4
"""Largest share of a summary model's window for the instructions; the rest is for reading and writing."""


EXTRACTING_MODEL = "offline"
"""Name of the model that writes a summary by rules: the most important sentences of what it reads."""


@dataclass(frozen=True, slots=True)
class Summariser:
    """A summary model and how to use it.

    `count` counts the tokens of a text; times `factor` they are the model's. `max_tokens` is the largest summary by
    that count: the policy's maximum, or less in a small window. `window_tokens` is the summary model's window.
    `is_substitute`: it stands in for models whose texts were refused, and leaves the existing summary as it is.
    """

    model: ChatModel
    policy: SummaryPolicy
    count: Callable[[str], int]
    max_tokens: int
    window_tokens: int
    factor: float = 1.15
    instructions: str = ""
    is_substitute: bool = False

    @property
    def key(self) -> str:
        """The key under which the model's failures are counted."""
        return self.model.calibration_key

    @property
    def is_extracting(self) -> bool:
        """Whether the model writes extracts by rules."""
        return self.model.name == EXTRACTING_MODEL

    @property
    def guidance(self) -> tuple[str, ...]:
        """The paragraphs of a request that ask for a tone, and for what the text has to keep."""
        return guidance_of(self.policy.style, self.instructions)

    @property
    def style_and_instructions(self) -> str:
        """What the text is to be like; part of the hash by which a segment is found again.

        An extract in a model's place has a hash of its own, so that a model that is there again writes its text.
        """
        extract = "extract" if self.is_substitute else ""
        return "\n".join(part for part in (extract, self.policy.style, self.instructions) if part)

    @property
    def instruction_tokens(self) -> int:
        """The model's tokens of the instructions."""
        return scale(self.count(self.instructions), self.factor)

    def request_tokens(self, max_tokens: int) -> int:
        """Return the most tokens, by our count, of a request that leaves room for a text of `max_tokens`."""
        return int((self.window_tokens - self.output_tokens(max_tokens)) / self._safe_factor)

    def prompt_tokens(self, prompt: Prompt) -> int:
        """Return the tokens of a request's texts by our count."""
        return sum(self.count(text) for text in (prompt.system, *(text_of(said.content) for said in prompt.messages)))

    def output_tokens(self, max_tokens: int) -> int:
        """Return `max_tokens`, which is by our count, converted to the model's count."""
        return math.ceil(max_tokens * self._safe_factor)

    @property
    def keep_tokens(self) -> int:
        """The tokens of an answer for lines below its summary that name facts.

        0 if no such lines are requested: the window is too small, or the policy wants the narrative alone.
        """
        is_asked = self.policy.kind is SummaryKind.HYBRID and self.window_tokens >= LEAST_WINDOW
        return min(KEEP_TOKENS, self.window_tokens // SMALL_WINDOW_PARTS) if is_asked else 0

    def transcript_tokens(self, request: Prompt, max_tokens: int) -> int:
        """Return the most tokens, by our count, of a transcript in `request`, which contains none yet."""
        return max(self.request_tokens(max_tokens) - self.prompt_tokens(request) - SLACK_TOKENS, SMALLEST_BUDGET)

    @property
    def _safe_factor(self) -> float:
        """The factor, but at least 1.

        A lower one is learned from prompts with tools, whose schemas we overcount; these requests have no tools.
        """
        return max(self.factor, 1.0)


async def find_summarisers(
    dependencies: SummaryDependencies, agent: ReadyAgent, instructions: str = ""
) -> tuple[Summariser, ...]:
    """Return the agent's summary model (or the setting's, if the agent names none), then the agent's own model.

    An unavailable summary model does not stop summaries: the agent's own model writes them. A model is left out if the
    instructions take more than INSTRUCTION_SHARE of its window. Raises SummaryRejected if that leaves none.
    """
    policy = agent.definition.context.summary
    all_instructions = "\n".join(part for part in (policy.instructions, instructions) if part)
    found = [
        await _summariser(dependencies, agent, model, all_instructions) for model in summary_models(dependencies, agent)
    ]
    fitting = tuple(one for one in found if one.instruction_tokens <= INSTRUCTION_SHARE * one.window_tokens)
    if found and not fitting:
        largest = max(found, key=lambda one: one.window_tokens)
        raise SummaryRejected(
            f"The instructions for summaries take {largest.instruction_tokens:,} tokens, more than a quarter of the "
            f"summary model's window of {largest.window_tokens:,}: shorten summary_instructions of the session, or "
            "context.summary.instructions of the agent."
        )
    return fitting


async def find_extracting(dependencies: SummaryDependencies, agent: ReadyAgent) -> Summariser:
    """Return the model that makes extracts; it takes no instructions and needs no provider."""
    extracting = await _summariser(dependencies, agent, dependencies.models.get(EXTRACTING_MODEL), "")
    return replace(extracting, is_substitute=True)


def summary_models(dependencies: SummaryDependencies, agent: ReadyAgent) -> list[ChatModel]:
    """Return the agent's summary model, then the agent's own if it is another one."""
    named = named_summary_model(dependencies.models, agent)
    if named is None or named.calibration_key == agent.model.calibration_key:
        return [agent.model]
    return [named, agent.model]


def summary_tokens(agent: ReadyAgent) -> int:
    """Return the most tokens, by our count, of the agent's summary.

    The factor is rounded up in steps, so that small changes of it do not change this limit.
    """
    limit = summary_limit(agent.definition.context.summary, agent.budget)
    return max(unscale(limit, stepped(agent.factor)), 1)


async def _summariser(
    dependencies: SummaryDependencies, agent: ReadyAgent, model: ChatModel, instructions: str
) -> Summariser:
    """Return `model` as a summary model of the agent.

    A window set for the agent applies to its own model only; a learned calibration applies to every agent of a model.
    """
    is_own = model.calibration_key == agent.model.calibration_key
    if not is_own:
        await model.ask_window()
    calibration = None if is_own else await dependencies.calibrations.load(calibration_key(model, agent.counter))
    learned = agent.factor if is_own else factor(calibration, is_known_tokenizer=model.has_known_tokenizer)
    return Summariser(
        model=model,
        policy=agent.definition.context.summary,
        count=agent.counter.count,
        max_tokens=summary_tokens(agent),
        window_tokens=agent.budget.window_tokens if is_own else trusted_window(calibration, model.context_limit),
        factor=stepped(learned),
        instructions=instructions,
    )


async def first_chunk(rest: tuple[Message, ...], room_tokens: int, summariser: Summariser) -> tuple[Message, ...]:
    """Return the first messages of `rest`, for one segment, in at most `room_tokens`.

    A first group that alone is larger is shortened to fit.
    """
    count, most = summariser.count, summariser.policy.chunk_messages

    def choose() -> tuple[Message, ...]:
        chosen = first_segment(rest, room_tokens=room_tokens, max_messages=most, count=count)
        frame = summariser.prompt_tokens(summary_request("…", (), 1, subjects=()))
        budget = room_tokens + frame + SLACK_TOKENS
        return chunk_for_summariser(chosen, budget_tokens=budget, count=count)[0]

    return await run_off_loop_if_large(characters_of(rest), choose)
