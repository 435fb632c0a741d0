"""Writes what the service needs for a replay: one agent for each cell, and the recorded tools."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.processes import write_agent
from benchmarks.replay_cell import Cell
from benchmarks.replay_data import Call, Dataset, tool_shapes
from benchmarks.replay_table import STRATEGIES

TOOL_ROUNDS = 100


def write_agents(folder: Path, cells: Iterable[Cell], double_urls: Mapping[str, str]) -> None:
    """Write an agent file for each cell; `double_urls` are the doubles' base URLs by provider.

    No default model may be set in the service, so that each agent writes its summaries with its own.
    """
    for cell in cells:
        write_agent(
            folder,
            cell.agent,
            model=f"{cell.provider}:{cell.model}",
            base_url=double_urls[cell.provider],
            system_prompt=cell.system_prompt,
            tools=[f"benchmarks.replay_tools:{name}" for name in sorted({call.name for call in _calls(cell)})],
            max_tool_rounds=TOOL_ROUNDS,
            # Quotations stand for one turn only; `benchmarks.planted_recall` measures them.
            context={"window": cell.window_tokens, "recall": "off", **STRATEGIES[cell.strategy]},
        )


def write_tools(path: Path, cells: Iterable[Cell], datasets: Iterable[Dataset]) -> None:
    """Write the file REPLAY_TOOLS names."""
    results = {call.id: call.result for cell in cells for call in _calls(cell)}
    path.write_text(json.dumps({"shapes": tool_shapes(datasets), "results": results}), "utf-8")


def _calls(cell: Cell) -> Iterator[Call]:
    return (call for turn in cell.turns for call in turn.calls)
