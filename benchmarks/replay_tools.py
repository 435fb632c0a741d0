"""The recorded tools, for the service under test: each call returns the result that was recorded for its id.

An agent names them `benchmarks.replay_tools:NAME`. The environment variable REPLAY_TOOLS names a JSON file
`{"shapes": {NAME: {ARGUMENT: type}}, "results": {CALL_ID: text}}`, which `benchmarks.replay` writes.
"""

import functools
import inspect
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from throughline.domain.tool import ToolContext

TYPES = {"str": str, "int": float, "float": float, "bool": bool, "list": list[object], "dict": dict[str, object]}
Tool: TypeAlias = Callable[..., Awaitable[str]]


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:  # parsed JSON
    loaded: dict[str, dict[str, Any]] = json.loads(Path(os.environ["REPLAY_TOOLS"]).read_text("utf-8"))
    return loaded


@functools.cache
def make_tool(name: str) -> Tool:
    """Return the tool of that name, with the arguments it was recorded with. Raises KeyError for another one."""
    shape: dict[str, str] = _recorded()["shapes"][name]

    async def tool(context: ToolContext, **given: object) -> str:
        del given
        call_id = context.idempotency_key.partition(":")[2]
        result: str = _recorded()["results"][call_id]
        return result

    parameters = [inspect.Parameter(item, inspect.Parameter.KEYWORD_ONLY, default=None) for item in shape]
    told = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY)
    types = {item: TYPES.get(kind, object) for item, kind in shape.items()}
    tool.__name__ = name
    tool.__doc__ = f"Replay what {name.replace('_', ' ')} returned when the conversation was recorded."
    tool.__annotations__ = {"context": ToolContext, **types, "return": str}
    tool.__signature__ = inspect.Signature([told, *parameters])  # type: ignore[attr-defined]  # functions take attributes
    return tool


def __getattr__(name: str) -> Tool:
    """Make the tools attributes of this module."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return make_tool(name)
    except KeyError as error:
        raise AttributeError(name) from error
