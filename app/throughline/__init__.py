"""Throughline: a self-hosted LangGraph agent service on PostgreSQL whose conversations can run for ever.

Example:
    import throughline

    async with throughline.connect(user="anna") as client: …

The names below are what other programs and tools need most; `throughline.client` and `throughline.tools` have the rest.
Each one's module is loaded when the name is first used: `import throughline` alone loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from throughline.client import Client, ThroughlineError, connect
    from throughline.client.summarize import count_tokens, get_context_limit, summarize_messages
    from throughline.tools import ToolContext, ToolFailed, not_repeatable

__all__ = [
    "Client",
    "ThroughlineError",
    "ToolContext",
    "ToolFailed",
    "connect",
    "count_tokens",
    "get_context_limit",
    "not_repeatable",
    "summarize_messages",
]

_MODULES = {
    "Client": "throughline.client",
    "ThroughlineError": "throughline.client",
    "ToolContext": "throughline.tools",
    "ToolFailed": "throughline.tools",
    "connect": "throughline.client",
    "count_tokens": "throughline.client.summarize",
    "get_context_limit": "throughline.client.summarize",
    "not_repeatable": "throughline.tools",
    "summarize_messages": "throughline.client.summarize",
}


if not TYPE_CHECKING:  # with it, a type checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        """Load a public name's module and keep the name (PEP 562). Raises AttributeError for any other name."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
