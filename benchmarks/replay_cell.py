"""Replays one chain of turns into one session of the service, and sums up what was seen of it."""

import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx

from benchmarks.replay_check import Json, Played, Said, find_differences, find_skipped, said_in
from benchmarks.replay_data import Step, Turn
from benchmarks.replay_table import SHIPPED, Row, growing_price, repeated_tokens

EventJson: TypeAlias = dict[str, Any]  # an event's data, or a record of the double's


@dataclass(frozen=True, slots=True)
class Stage:
    """One `context.compaction.finished`: `fired` names the steps that changed the prompt."""

    outcome: str
    fired: tuple[str, ...]


@dataclass(slots=True)
class Told:
    """What the events of one turn told; `ending` is the name of its last event, empty for a stream that was cut.

    `calls` holds the number of stages right before each answered model call, `pending` that after the last call.
    """

    ending: str = ""
    error: str = ""
    stages: list[Stage] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    pending: int = 0

    @property
    def is_answered(self) -> bool:
        """Whether the run was completed."""
        return self.ending == "run.completed"

    def take(self, name: str, data: EventJson) -> None:
        """Read one event; each stored step of the model's ends a call."""
        match name:
            case "context.compaction.finished":
                self.stages.append(Stage(str(data.get("outcome")), tuple(data.get("fired", ()))))
                self.pending += 1
            case "message.completed":
                self.calls.append(self.pending)
                self.pending = 0
            case "run.completed" | "run.failed" | "run.cancelled":
                self.ending = name
                self.error = "" if self.is_answered else f"{name} {data!s:.300}"
            case _:
                pass


def read_turn(stream: str) -> Told:
    """Read the server-sent events of a whole run."""
    told = Told(error="no last event")
    for name, data in _events(stream):
        told.take(name, data)
    return told


def stage_flags(told: Told, records: Sequence[EventJson]) -> list[bool]:
    """Return for each model request of a turn whether a stage came between it and the request before.

    A refused request and the smaller one after it belong to one call of the turn's.
    """
    flags: list[bool] = []
    call = 0
    for record in records:
        stages = told.calls[call] if call < len(told.calls) else len(told.stages)
        flags.append(stages > 0)
        call += record["verdict"] == "answered"
    return flags


def stable_share(requests: Iterable[tuple[EventJson, bool]]) -> float:
    """Return the share of the prompts' bytes that stand at the start of the next prompt; 1 where there was none.

    Each request comes with its flag; those that a stage came before do not count.
    """
    at_rest = [record for record, has_stage in requests if not has_stage]
    previous = sum(record["previous_bytes"] for record in at_rest)
    return sum(record["shared_bytes"] for record in at_rest) / previous if previous else 1.0


def _events(stream: str) -> Iterator[tuple[str, EventJson]]:
    for block in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "event" in fields:
            yield fields["event"], json.loads(fields.get("data", "{}"))


BATCH = 50
LEAST_TURNS = 4
"""One turn of a coding agent may take more than three windows; a conversation has more than one."""

SETTLED_SECONDS = 1.0
CONTROL_SECONDS = 330.0


class DoubleControl:
    """The control routes of one double. `url` is the base URL for clients."""

    def __init__(self, url: str, provider: str) -> None:
        """Connect."""
        self.provider = provider
        self._http = httpx.Client(base_url=url.removesuffix("/v1"), timeout=CONTROL_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def reset(self) -> None:
        """Have it forget all requests, once no more of them come."""
        self.settle()
        self._http.post("/control/reset").raise_for_status()

    def script(self, line: str, turn: Turn) -> None:
        """Tell it the turn's answers; steps left over from a failed turn are dropped."""
        steps = [_step_json(step) for step in turn.steps]
        self._http.post("/control/script", json={"steps": steps, "line": line, "replace": True}).raise_for_status()

    def settle(self) -> None:
        """Wait until nobody asks it anything: summaries may still be written in the background."""
        seen, until = -1, 0.0
        while time.monotonic() < until or seen != self._requests_seen():
            if seen != (now := self._requests_seen()):
                seen, until = now, time.monotonic() + SETTLED_SECONDS
            time.sleep(SETTLED_SECONDS / 10)

    def requests(self) -> list[Json]:
        """Return the records of all requests since the last reset."""
        found: list[Json] = self._http.get("/control/requests").raise_for_status().json()
        return found

    def fill(self, turns: Iterator[Turn], model: str, tokens: int) -> tuple[Turn, ...]:
        """Take turns until they hold at least `tokens` by the model's own count, and are LEAST_TURNS at least."""
        taken: list[Turn] = []
        while tokens > 0 or len(taken) < LEAST_TURNS:
            batch = list(itertools.islice(turns, BATCH))
            counts = self.count(model, [("", tuple(said_in(turn))) for turn in batch])
            for turn, counted in zip(batch, counts, strict=True):
                if tokens > 0 or len(taken) < LEAST_TURNS:
                    taken.append(turn)
                    tokens -= counted
        return tuple(taken)

    def count(self, model: str, prompts: Sequence[tuple[str, tuple[Said, ...]]]) -> list[int]:
        """Return the model's own count of each prompt, a system prompt and what was said."""
        as_prompt = openai_prompt if self.provider == "openai" else anthropic_prompt
        body = {"model": model, "prompts": [as_prompt(system, said) for system, said in prompts]}
        counted: list[int] = self._http.post("/control/count", json=body).raise_for_status().json()["prompts"]
        return counted

    def full_history(self, model: str, system_prompt: str, turns: Sequence[Turn]) -> list[int]:
        """Return what each prompt would come to with the whole history in it; the tools' schemas left out."""
        said = [item for turn in turns for item in said_in(turn)]
        fixed, *tokens = self.count(model, [(system_prompt, ()), *(("", (item,)) for item in said)])
        reply = self.count(model, [("", ())])[0]
        prompts: list[int] = []
        history = fixed
        for item, counted in zip(said, tokens, strict=True):
            if item.role == "assistant":
                prompts.append(history)
            history += counted - reply
        return prompts

    def _requests_seen(self) -> int:
        verdicts: dict[str, int] = self._http.get("/control/stats").raise_for_status().json()["verdicts"]
        return sum(verdicts.values())


def openai_prompt(system: str, said: Sequence[Said]) -> list[Json]:
    """Return chat messages."""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *map(_chat_message, said)]


def anthropic_prompt(system: str, said: Sequence[Said]) -> Json:
    """Return as much of a Messages request as is counted; each result is a message of its own."""
    return {"messages": [_blocks_message(item) for item in said], **({"system": system} if system else {})}


def _chat_message(said: Said) -> Json:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in said.calls
    ]
    named = {"tool_call_id": said.tool_call_id} if said.tool_call_id else {}
    return {"role": said.role, "content": said.content, **named, **({"tool_calls": calls} if calls else {})}


def _blocks_message(said: Said) -> Json:
    if said.tool_call_id:
        result = {"type": "tool_result", "tool_use_id": said.tool_call_id, "content": said.content}
        return {"role": "user", "content": [result]}
    texts: list[Json] = [{"type": "text", "text": said.content}] if said.content else []
    calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": {"arguments": arguments}}
        for call_id, name, arguments in said.calls
    ]
    return {"role": said.role, "content": [*texts, *calls]}


def _step_json(step: Step) -> Json:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in step.calls]
    return {"text": step.text, "calls": calls}


PAGE = 200
TURN_SECONDS = 330.0
STREAM = {"Accept": "text/event-stream"}
_WRITTEN = re.compile(r'^throughline_summary_tokens_total{.*direction="output".*} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination to replay. `agent` is the agent's name, which is also its conversation's in the script."""

    provider: str
    dataset: str
    window: str
    counting: str
    agent: str
    system_prompt: str
    turns: tuple[Turn, ...]
    strategy: str = SHIPPED

    @property
    def model(self) -> str:
        """The double's model."""
        return f"double-{self.window}-{self.counting}"

    @property
    def window_tokens(self) -> int:
        """The window as a number of tokens."""
        return int(self.window.removesuffix("k")) * 1024


@dataclass(frozen=True, slots=True)
class Sent:
    """A turn as it went: what was sent, what the events told, and when."""

    turn: Turn
    told: Told
    began: float
    ended: float

    def requests_in(self, records: Sequence[Json]) -> list[Json]:
        """Return the double's records of this turn's time."""
        return [record for record in records if self.began <= record["at"] <= self.ended]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a cell: the turns, the stored messages, where the cursor stands, what the double recorded."""

    sent: tuple[Sent, ...]
    messages: tuple[Json, ...]
    cursor: int
    records: tuple[Json, ...]

    @property
    def prompts(self) -> list[Json]:
        """The model requests that could be counted."""
        return [record for record in self.records if record["line"] != "summariser" and record["prompt_tokens"]]

    @property
    def summaries(self) -> list[Json]:
        """The summarisers' requests."""
        return [record for record in self.records if record["line"] == "summariser"]

    @property
    def stages(self) -> list[Stage]:
        """What the events told of compactions."""
        return [stage for sent in self.sent for stage in sent.told.stages]

    @property
    def errors(self) -> list[str]:
        """Why turns were not answered."""
        return [f"turn {number}: {sent.told.error}" for number, sent in enumerate(self.sent, 1) if sent.told.error]

    def differences(self) -> list[str]:
        """Return what is not stored as it was said."""
        return find_differences([Played(sent.turn, sent.told.is_answered) for sent in self.sent], self.messages)

    def stable_prefix(self) -> float:
        """Return how much of the prompts stands at the start of the next one while no stage comes between them."""
        of_turns = [(sent.told, sent.requests_in(self.prompts)) for sent in self.sent]
        flagged = (zip(asked, stage_flags(told, asked), strict=True) for told, asked in of_turns)
        return stable_share(itertools.chain.from_iterable(flagged))


class Replayer:
    """Plays cells into one service."""

    def __init__(self, service_url: str, pause_seconds: float = 0.0) -> None:
        """Connect. Before each turn it waits, so that what is done in the background has some time."""
        self._pause_seconds = pause_seconds
        self._service = httpx.Client(base_url=service_url, timeout=TURN_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._service.close()

    def run(self, cell: Cell, double: DoubleControl) -> tuple[Row, list[str]]:
        """Replay the cell; return its figures and what went wrong."""
        double.reset()
        written = self._written_tokens()
        replayed = self._play(cell, double)
        written = self._written_tokens() - written
        differences, skipped = replayed.differences(), find_skipped(replayed.cursor, replayed.summaries)
        records, prompts, summaries, stages = replayed.records, replayed.prompts, replayed.summaries, replayed.stages
        fitting = [record for record in prompts if record["verdict"] != "over_window"]
        row = Row(
            provider=cell.provider,
            dataset=cell.dataset,
            window=cell.window,
            counting=cell.counting,
            strategy=cell.strategy,
            turns=len(replayed.sent),
            prompts=len(prompts),
            compactions=sum(stage.outcome == "adopted" for stage in stages),
            stages=tuple(sorted(Counter(name for stage in stages for name in stage.fired).items())),
            largest_fill=max((record["prompt_tokens"] / record["window_tokens"] for record in fitting), default=0.0),
            over_window=sum(record["verdict"] == "over_window" for record in records),
            failed_turns=len(replayed.errors),
            invalid=sum(record["verdict"] == "invalid" for record in records),
            differences=len(differences),
            cursor=replayed.cursor,
            skipped=len(skipped),
            stable_prefix=replayed.stable_prefix(),
            prompt_tokens=sum(record["prompt_tokens"] for record in fitting),
            repeated_tokens=repeated_tokens(prompts),
            summary_calls=len(summaries),
            summary_tokens=sum(record["prompt_tokens"] for record in summaries),
            summary_written_tokens=written,
            full_history_price=growing_price(double.full_history(cell.model, cell.system_prompt, cell.turns)),
        )
        notes = [f"skipped behind the cursor at {replayed.cursor}: {skipped[:20]}"] if skipped else []
        return row, [*replayed.errors, *differences[:5], *notes]

    def _play(self, cell: Cell, double: DoubleControl) -> Replayed:
        created = self._service.post("/v1/sessions", json={"agent": cell.agent}).raise_for_status()
        session_id: str = created.json()["id"]
        sent = tuple(self._send(session_id, turn, cell, double) for turn in cell.turns)
        double.settle()
        session = self._service.get(f"/v1/sessions/{session_id}").raise_for_status().json()
        messages = tuple(self._messages(session_id))
        return Replayed(sent, messages, session["summarized_count"], tuple(double.requests()))

    def _send(self, session_id: str, turn: Turn, cell: Cell, double: DoubleControl) -> Sent:
        time.sleep(self._pause_seconds)
        double.script(cell.agent, turn)
        metadata = {"metadata": {"authors": turn.authors}} if turn.authors else {}
        path, body = f"/v1/sessions/{session_id}/messages", {"content": turn.user, **metadata}
        began = time.time()
        try:
            response = self._service.post(path, json=body, headers=STREAM)
        except httpx.TransportError as error:  # a stream that is cut is no answer
            return Sent(turn, Told(error=repr(error)), began, time.time())
        ended = time.time()
        if response.status_code != httpx.codes.OK:
            return Sent(turn, Told(error=f"{response.status_code} {response.text:.300}"), began, ended)
        return Sent(turn, read_turn(response.text), began, ended)

    def _messages(self, session_id: str) -> Iterator[Json]:
        after: int | None = 0
        while after is not None:
            params = {"after": after, "limit": PAGE}
            page = self._service.get(f"/v1/sessions/{session_id}/messages", params=params).raise_for_status().json()
            yield from page["data"]
            after = page["data"][-1]["position"] if page["next_cursor"] is not None else None

    def _written_tokens(self) -> int:
        """Return how many tokens summarisers have written so far."""
        metrics = self._service.get("/metrics").raise_for_status().text
        return sum(int(float(value)) for value in _WRITTEN.findall(metrics))
