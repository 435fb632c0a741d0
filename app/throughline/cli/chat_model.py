"""The chat command `/model`: another model for the chat's further messages, if the agent allows it."""

from throughline.cli.chat_state import ChatState
from throughline.cli.printable import one_line
from throughline.domain.errors import InvalidInput
from throughline.domain.prompt import OverrideField
from throughline.wire.service import AgentOut

OWN = "default"
"""The word with which `/model` goes back to the agent's own model."""


async def choose_model(state: ChatState, name: str) -> None:
    """Let another model answer from the next message on, or show the model in use and the allowed ones."""
    agent = await _agent_of(state)
    allowed = agent.override_models if OverrideField.MODEL in agent.overrides else []
    if not name:
        _show(state, agent, allowed)
    elif name in allowed:
        state.model = name
        state.screen.say(f"{_shown(name)} answers from the next message on, until the agent or the session changes.")
    elif name in {OWN, agent.model}:
        state.model = ""
        state.screen.say(f"{_own_model(agent)} answers from the next message on.")
    else:
        raise InvalidInput(_refusal(agent, name, allowed))


def _show(state: ChatState, agent: AgentOut, allowed: list[str]) -> None:
    used = _shown(state.model) if state.model else _own_model(agent)
    others = f"You may choose: {_listed(allowed)}, or {OWN}." if allowed else _none_allowed(agent)
    state.screen.say(f"{used} answers. {others}")


async def _agent_of(state: ChatState) -> AgentOut:
    agents = await state.client.agents()
    found = next((agent for agent in agents if agent.name == state.agent), None)
    if found is None:
        known = ", ".join(agent.name for agent in agents)
        raise InvalidInput(f"The agent {state.agent} no longer exists. /agent chooses another one: {known}.")
    return found


def _refusal(agent: AgentOut, name: str, allowed: list[str]) -> str:
    if not allowed:
        return _none_allowed(agent)
    return f"The agent {agent.name} has no model {_shown(name)!r} to choose. You may choose: {_listed(allowed)}."


def _none_allowed(agent: AgentOut) -> str:
    return (
        f"The agent {agent.name} allows no other model: its file would name them in `override_models`, and `model` in "
        "`overrides`."
    )


def _own_model(agent: AgentOut) -> str:
    return f"The agent's own model ({_shown(agent.model or 'the setting DEFAULT_LLM')})"


def _listed(names: list[str]) -> str:
    return ", ".join(map(_shown, names))


def _shown(name: str) -> str:
    return one_line(name, limit=200)
