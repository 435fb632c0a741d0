"""First node: checks the run, finds its agent and makes it ready for the turn."""

from langgraph.runtime import Runtime

from app.agents.definition import AgentDefinition
from app.context.budget import Budget, check_fits, make_budget
from app.context.calibration import Calibration, factor, trusted_window
from app.context.measure import count_system, count_tool_specs
from app.domain.errors import RunAbandoned
from app.domain.events import EventType
from app.domain.run import Run, user_message
from app.domain.wire import run_json
from app.turn.state import ReadyAgent, Turn, TurnParts, TurnState


async def process_message(state: TurnState, runtime: Runtime[Turn]) -> dict[str, object]:
    """Announce the run, refuse one that keeps killing its workers, and set `agent` and `user`.

    Raises RunAbandoned, NotFound (the agent is gone), SettingInvalid (its model).
    """
    turn, run = runtime.context, state.claimed.run
    _announce(turn, run)
    if run.attempt > turn.parts.config.max_attempts:
        raise RunAbandoned(
            f"This message was tried {run.attempt - 1} times and no worker lived to finish it. "
            "Send it again, perhaps changed; the conversation itself goes on."
        )
    agent = await assemble_agent(turn.parts, turn.parts.agents.get(run.agent))
    return {"agent": agent, "user": user_message(run)}


async def assemble_agent(parts: TurnParts, definition: AgentDefinition) -> ReadyAgent:
    """Find the agent's model, tools and counter, and its budget in that model's window."""
    model = parts.models.get(definition.model, definition.base_url)
    counter = parts.make_counter(definition.context.token_counter)
    tools = parts.tools.specs(definition.tools)
    tools_tokens = count_tool_specs(tools, counter.count)
    calibration = await parts.calibrations.load(model.calibration_key)
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


async def check_agent(parts: TurnParts, definition: AgentDefinition) -> ReadyAgent:
    """Make an agent ready as a turn will; for the start of the service.

    Raises SettingInvalid, and PromptCannotFit where its prompt and tools leave no room to talk. By our plain count:
    what is learned of a provider later makes prompts smaller; it never stops an agent that worked.
    """
    agent = await assemble_agent(parts, definition)
    if definition.context.summary.model:
        parts.models.get(definition.context.summary.model, definition.context.summary.base_url)
    if definition.context.pre_compact:
        parts.hooks.get(definition.context.pre_compact)
    configured = make_budget(definition.context, definition.context.window or agent.model.context_limit)
    check_fits(configured, count_system(definition.system_prompt, agent.counter.count), agent.tools_tokens)
    return agent


def _announce(turn: Turn, run: Run) -> None:
    """A further attempt resets what readers were shown by the one that died."""
    if run.attempt > 1:
        turn.events.emit(EventType.RESET, {"attempt": run.attempt})
    turn.events.emit(EventType.RUN_STARTED, {"run": run_json(run)})


def _budget(definition: AgentDefinition, model_limit: int, calibration: Calibration | None) -> Budget:
    """The marks of the agent's window, or of the smaller one that the provider has told us of."""
    configured = definition.context.window or model_limit
    return make_budget(definition.context, trusted_window(calibration, configured))
