"""Drawing of one agent: its model, tools and parameters, and the context policy as an agent file would have it."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue
from rich.text import Text

from throughline.cli.printable import printable
from throughline.domain.model_window import WindowOrigin
from throughline.wire.service import AgentOut

INDENT = "  "
WINDOW_FROM = {
    "agent file": "agent file (context.window)",
    "learned": "learned (a provider's refusal named it)",
    "server": "server (the model's server reports it)",
    "profile": "profile (of the model in LangChain)",
    "table": "table (of well-known models in the service)",
    "unknown": "unknown (assumed; set context.window in the agent file)",
}


def drawn_window(agent: AgentOut) -> str:
    """Return the agent's window for a table, with a mark if it is assumed."""
    return f"{agent.window:,} (assumed)" if agent.window_from == WindowOrigin.UNKNOWN else f"{agent.window:,}"


def draw_agent(agent: AgentOut) -> Text:
    """Return the agent in the form of an agent file, without its system prompt."""
    shown: dict[str, JsonValue] = {
        "name": agent.name,
        "description": agent.description,
        "model": agent.model or "(the setting DEFAULT_LLM)",
        "window": agent.window,
        "window_from": WINDOW_FROM.get(agent.window_from, agent.window_from),
        "tools": list(agent.tools),
        "max_tool_rounds": agent.max_tool_rounds,
        "max_client_rounds": agent.max_client_rounds,
        "reasoning": agent.reasoning,
        "parameters": agent.parameters,
        "daily_budget": agent.daily_budget,
        "overrides": list(agent.overrides),
        "override_models": list(agent.override_models),
        "context": agent.context,
    }
    return Text("\n".join(_lines(shown, "")))


def _lines(values: Mapping[str, JsonValue], indent: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{printable(name)}:"
            yield from _lines(value, indent + INDENT)
        else:
            yield f"{indent}{printable(name)}: {_written(value)}".rstrip()


def _written(value: JsonValue) -> str:
    match value:
        case None | "" | [] | {}:
            return ""
        case list():
            return f"[{', '.join(_written(item) for item in value)}]"
        case bool():
            return str(value).lower()
        case _:
            return printable(str(value)).replace("\n", " ")
