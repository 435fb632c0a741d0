"""An agent made ready: its model, tools, counter, and its budget in that model's window."""

from collections.abc import Callable
from dataclasses import dataclass

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.budget import Budget, make_budget
from throughline.context.calibration import Calibration, factor, trusted_window
from throughline.context.measure import count_tool_specs
from throughline.domain.prompt import ToolSpec
from throughline.execution.breaker import Breakers
from throughline.ports.metrics import Metrics
from throughline.ports.models import ChatModel, Models, TokenCounter
from throughline.ports.storage import CalibrationStore, MessageStore
from throughline.ports.summaries import SummaryStore
from throughline.ports.tools import Tools

DEFAULT_COUNTER = "tiktoken:cl100k_base"


@dataclass(frozen=True, slots=True)
class ReadyAgent:
    """An agent ready for a turn: its definition, model, tools and counter, fixed for the whole turn.

    `factor` is what our counts are multiplied by before they are held against the window; within a turn it only
    grows, with what the provider reports of the prompts it was sent.
    """

    definition: AgentDefinition
    model: ChatModel
    counter: TokenCounter
    tools: tuple[ToolSpec, ...]
    tools_tokens: int
    budget: Budget
    factor: float

    @property
    def calibration_key(self) -> str:
        """What is learned of how the model counts is stored under."""
        return calibration_key(self.model, self.counter)


@dataclass(frozen=True, slots=True)
class PromptDependencies:
    """What preparing a prompt, and reporting on one, needs from outside."""

    messages: MessageStore
    summaries: SummaryStore
    models: Models
    tools: Tools
    agents: AgentRegistry
    calibrations: CalibrationStore
    breakers: Breakers
    metrics: Metrics
    make_counter: Callable[[str], TokenCounter]


async def assemble_agent(dependencies: PromptDependencies, definition: AgentDefinition) -> ReadyAgent:
    """Find the agent's model, tools and counter, and its budget in that model's window."""
    model = dependencies.models.get(definition.model, definition.base_url, definition.api_key_env)
    counter = dependencies.make_counter(definition.context.token_counter)
    tools = dependencies.tools.specs(definition.tools)
    tools_tokens = count_tool_specs(tools, counter.count)
    calibration = await dependencies.calibrations.load(calibration_key(model, counter))
    budget = _budget(definition, model.context_limit, calibration)
    return ReadyAgent(
        definition=definition,
        model=model,
        counter=counter,
        tools=tools,
        tools_tokens=tools_tokens,
        budget=budget,
        factor=factor(calibration, is_known_tokenizer=model.has_known_tokenizer),
    )


def calibration_key(model: ChatModel, counter: TokenCounter) -> str:
    """Return the key of a model's learned ratio to a counter's counts: another counter has another ratio."""
    key = model.calibration_key
    return key if counter.name == DEFAULT_COUNTER else f"{key} by {counter.name}"


def _budget(definition: AgentDefinition, model_limit: int, calibration: Calibration | None) -> Budget:
    """The marks of the agent's window, or of the smaller one that the provider has told us of."""
    configured = definition.context.window or model_limit
    return make_budget(definition.context, trusted_window(calibration, configured))
