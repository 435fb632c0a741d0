"""Finds the data sets in a folder and reads each in its own form; `LOADERS` says where each looks."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.replay_agent_logs import load_openhands, load_swe_agent
from benchmarks.replay_data import Conversation, Dataset, Json, Step, Turn, json_lines
from benchmarks.replay_messages import turns_of

_SPOKEN = re.compile(r"\[\d\d:\d\d\] <([^>]+)> ")


def load_datasets(folder: Path) -> dict[str, Dataset]:
    """Return the data sets found in `folder` by name, in a fixed order."""
    loaded = (load(folder / name) for name, load in LOADERS.items())
    return {dataset.name: dataset for dataset in loaded if dataset.conversations}


def _load_tau_bench(folder: Path) -> Dataset:
    runs = [run for path in sorted(folder.glob("*.json")) for run in json.loads(path.read_text("utf-8"))]
    trajectories: list[list[Json]] = [run["traj"] for run in runs if "traj" in run]
    systems = [message["content"] for run in trajectories for message in run if message["role"] == "system"]
    conversations = tuple(Conversation(tuple(turns_of(run))) for run in trajectories)
    return Dataset("tau-bench", systems[0] if systems else "", conversations)


def _load_qmsum(folder: Path) -> Dataset:
    return Dataset(
        name="qmsum",
        system_prompt="You take part in a meeting as its secretary. Confirm what you have noted.",
        conversations=tuple(_meeting(line["meeting_transcripts"]) for line in json_lines(folder)),
        is_talk=True,
    )


def _meeting(transcript: Iterable[Json]) -> Conversation:
    said = [(entry["speaker"], entry["content"]) for entry in transcript if entry["content"].strip()]
    return _talk((f"{speaker}: {content}", (speaker,)) for speaker, content in said)


def _load_ubuntu_irc(folder: Path) -> Dataset:
    """Each file is a day of the channel; a line's bytes are kept, those that are no text are replaced."""
    logs = [path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*.raw.txt"))]
    return Dataset(
        name="ubuntu-irc",
        system_prompt="You keep the minutes of a support channel with many people. Confirm what you have noted.",
        conversations=tuple(_talk(_spoken(log)) for log in logs),
        is_talk=True,
    )


def _spoken(log: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each line and who said it; the server's own lines have no author."""
    for line in log.split("\n"):
        found = _SPOKEN.match(line)
        if line.strip():
            yield line, (found[1],) if found else ()


def _talk(lines: Iterable[tuple[str, tuple[str, ...]]]) -> Conversation:
    turns = (
        Turn(text, (Step(f"Noted, item {index}."),), authors=authors) for index, (text, authors) in enumerate(lines, 1)
    )
    return Conversation(tuple(turns))


LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "tau-bench": _load_tau_bench,
    "qmsum": _load_qmsum,
    "openhands-events": load_openhands,
    "swe-agent-demos": load_swe_agent,
    "ubuntu-irc": _load_ubuntu_irc,
}
"""BatchResult for in `tau-bench/*.json`, `qmsum/*.jsonl`, `openhands-events/*.jsonl`, `swe-agent-demos/*.traj` and
`ubuntu-irc/**/*.raw.txt`."""
