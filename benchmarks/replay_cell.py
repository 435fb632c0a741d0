"""Replays one chain of turns into one session of the service and measures what the double saw of it."""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import httpx

from benchmarks.replay_check import Json, Played, Said, find_differences, said_in
from benchmarks.replay_data import Step, Turn
from benchmarks.replay_table import Row

Interval: TypeAlias = tuple[float, float]
BATCH = 50
PAGE = 200
TURN_SECONDS = 330.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination to replay. `agent` is the agent's name, which is also its conversation's in the script."""

    dataset: str
    window: str
    counting: str
    agent: str
    system_prompt: str
    turns: tuple[Turn, ...]

    @property
    def model(self) -> str:
        """The double's model."""
        return f"double-{self.window}-{self.counting}"

    @property
    def window_tokens(self) -> int:
        """The window as a number of tokens."""
        return int(self.window.removesuffix("k")) * 1024

    def with_turns(self, turns: tuple[Turn, ...]) -> "Cell":
        """Return the cell with these turns."""
        return replace(self, turns=turns)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What happened: the turns, when each was sent and answered, and the errors of those that failed.

    `compactions` is the number of turns after which the summary stood for more messages than before.
    """

    session_id: str
    played: tuple[Played, ...]
    intervals: tuple[Interval, ...]
    errors: tuple[str, ...]
    compactions: int


class Replayer:
    """Talks to the service and to the double's control routes."""

    def __init__(self, service_url: str, double_url: str) -> None:
        """Connect to both."""
        self._service = httpx.Client(base_url=service_url, timeout=TURN_SECONDS)
        self._double = httpx.Client(base_url=double_url.removesuffix("/v1"), timeout=TURN_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._service.close()
        self._double.close()

    def fill(self, turns: Iterator[Turn], model: str, tokens: int) -> tuple[Turn, ...]:
        """Take turns until they hold at least `tokens` by the model's own count."""
        taken: list[Turn] = []
        while tokens > 0:
            batch = list(itertools.islice(turns, BATCH))
            counts = self._count(model, [[_as_prompt(item) for item in said_in(turn)] for turn in batch])
            for turn, counted in zip(batch, counts, strict=True):
                if tokens > 0:
                    taken.append(turn)
                    tokens -= counted
        return tuple(taken)

    def run(self, cell: Cell) -> tuple[Row, list[str]]:
        """Replay the cell; return its figures and what went wrong."""
        self._double.post("/control/reset").raise_for_status()
        replayed = self._play(cell)
        records: list[Json] = self._double.get("/control/requests").raise_for_status().json()
        differences = find_differences(replayed.played, self._messages(replayed.session_id))
        row = self._measure(cell, replayed, records, len(differences))
        return row, [*replayed.errors, *differences[:5]]

    def _play(self, cell: Cell) -> Replayed:
        created = self._service.post("/v1/sessions", json={"agent": cell.agent}).raise_for_status()
        session_id: str = created.json()["id"]
        played: list[Played] = []
        intervals: list[Interval] = []
        errors: list[str] = []
        cursors = [0]
        for number, turn in enumerate(cell.turns, 1):
            self._script(cell.agent, turn)
            sent_at = time.time()
            response = self._service.post(f"/v1/sessions/{session_id}/messages", json={"content": turn.user})
            intervals.append((sent_at, time.time()))
            is_answered = response.status_code == httpx.codes.OK
            played.append(Played(turn, is_answered))
            if not is_answered:
                errors.append(f"turn {number}: {response.status_code} {response.text:.300}")
            cursors.append(self._summarised(session_id))
        compactions = sum(1 for before, after in itertools.pairwise(cursors) if after > before)
        return Replayed(session_id, tuple(played), tuple(intervals), tuple(errors), compactions)

    def _script(self, line: str, turn: Turn) -> None:
        """Tell the double the turn's answers; steps left over from a failed turn are dropped."""
        steps = [_step_json(step) for step in turn.steps]
        self._double.post("/control/script", json={"steps": steps, "line": line, "replace": True}).raise_for_status()

    def _messages(self, session_id: str) -> list[Json]:
        messages: list[Json] = []
        while True:
            after = messages[-1]["position"] if messages else 0
            params = {"after": after, "limit": PAGE}
            page = self._service.get(f"/v1/sessions/{session_id}/messages", params=params).raise_for_status().json()
            messages += page["data"]
            if page["next_cursor"] is None:
                return messages

    def _summarised(self, session_id: str) -> int:
        """Return how many messages the session's summary stands for."""
        found: int = self._service.get(f"/v1/sessions/{session_id}").raise_for_status().json()["summarized_count"]
        return found

    def _measure(self, cell: Cell, replayed: Replayed, records: Sequence[Json], differences: int) -> Row:
        prompts = [record for record in records if record["line"] != "summariser" and record["prompt_tokens"]]
        summaries = [record for record in records if record["line"] == "summariser"]
        sent = [record for record in prompts if record["verdict"] != "over_window"]
        over = [record for record in records if record["verdict"] == "over_window"]
        seconds = sum(end - start for start, end in replayed.intervals)
        previous = sum(record["previous_bytes"] for record in prompts)
        return Row(
            dataset=cell.dataset,
            window=cell.window,
            counting=cell.counting,
            turns=len(replayed.played),
            prompts=len(prompts),
            compactions=replayed.compactions,
            largest_fill=max((record["prompt_tokens"] / record["window_tokens"] for record in sent), default=0.0),
            over_window=len(over),
            refused_turns=_turns_with(over, replayed.intervals),
            failed_turns=len(replayed.errors),
            invalid=sum(1 for record in records if record["verdict"] == "invalid"),
            summary_calls=len(summaries),
            summary_tokens=sum(record["prompt_tokens"] for record in summaries),
            prompt_tokens=sum(record["prompt_tokens"] for record in sent),
            full_history_tokens=self._full_history(cell),
            stable_prefix=sum(record["shared_bytes"] for record in prompts) / max(previous, 1),
            turns_per_second=len(replayed.played) / max(seconds, 1e-9),
            differences=differences,
        )

    def _full_history(self, cell: Cell) -> int:
        """Return what the prompts would come to with the whole history in each; the tools' schemas left out."""
        said = [item for turn in cell.turns for item in said_in(turn)]
        system = {"role": "system", "content": cell.system_prompt}
        fixed, *tokens = self._count(cell.model, [[system], *([_as_prompt(item)] for item in said)])
        reply = self._count(cell.model, [[]])[0]
        total, history = 0, fixed
        for item, counted in zip(said, tokens, strict=True):
            if item.role == "assistant":
                total += history
            history += counted - reply
        return total

    def _count(self, model: str, prompts: Sequence[Sequence[Json]]) -> list[int]:
        body = {"model": model, "prompts": prompts}
        counted: list[int] = self._double.post("/control/count", json=body).raise_for_status().json()["prompts"]
        return counted


def _turns_with(records: Sequence[Json], intervals: Sequence[Interval]) -> int:
    times = [record["at"] for record in records]
    return sum(1 for start, end in intervals if any(start <= at <= end for at in times))


def _step_json(step: Step) -> Json:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in step.calls]
    return {"text": step.text, "calls": calls}


def _as_prompt(said: Said) -> Json:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in said.calls
    ]
    named = {"tool_call_id": said.tool_call_id} if said.tool_call_id else {}
    return {"role": said.role, "content": said.content, **named, **({"tool_calls": calls} if calls else {})}
