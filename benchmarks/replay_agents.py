"""Writes what the service needs for a replay: one agent for each cell, and the recorded tools."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.replay_cell import Cell
from benchmarks.replay_data import Dataset, tool_shapes
from benchmarks.replay_strategies import STRATEGIES

TOOL_ROUNDS = 100


def write_agents(folder: Path, cells: Iterable[Cell], double_urls: Mapping[str, str]) -> None:
    """Write an agent file for each cell (JSON is YAML, too); `double_urls` are the doubles' base URLs by provider.

    No default model may be set in the service, so that each agent writes its summaries with its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        agent = {
            "name": cell.agent,
            "model": f"{cell.provider}:{cell.model}",
            "base_url": double_urls[cell.provider],
            "system_prompt": cell.system_prompt,
            "tools": [f"benchmarks.replay_tools:{name}" for name in _called(cell)],
            "max_tool_rounds": TOOL_ROUNDS,
            "context": {"window": cell.window_tokens, **STRATEGIES[cell.strategy]},
        }
        (folder / f"{cell.agent}.yaml").write_text(json.dumps(agent, indent=1), "utf-8")


def write_tools(path: Path, cells: Iterable[Cell], datasets: Iterable[Dataset]) -> None:
    """Write the file REPLAY_TOOLS names."""
    calls = (call for cell in cells for turn in cell.turns for step in turn.steps for call in step.calls)
    results = {call.id: call.result for call in calls}
    path.write_text(json.dumps({"shapes": tool_shapes(datasets), "results": results}), "utf-8")


def _called(cell: Cell) -> list[str]:
    return sorted({call.name for turn in cell.turns for step in turn.steps for call in step.calls})
