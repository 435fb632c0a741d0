"""Replays one chain of turns into one session of the service, and sums up what was seen of it."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from benchmarks.replay_check import Json, Played, find_differences, find_unread
from benchmarks.replay_data import Turn
from benchmarks.replay_double import DoubleControl
from benchmarks.replay_stages import Stage, Told, read_turn, stable_share, stage_flags
from benchmarks.replay_table import SHIPPED, Row, growing_price, repeated_tokens

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
        differences, unread = replayed.differences(), find_unread(replayed.cursor, replayed.summaries)
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
            unread=len(unread),
            stable_prefix=replayed.stable_prefix(),
            prompt_tokens=sum(record["prompt_tokens"] for record in fitting),
            repeated_tokens=repeated_tokens(prompts),
            summary_calls=len(summaries),
            summary_tokens=sum(record["prompt_tokens"] for record in summaries),
            summary_written_tokens=written,
            full_history_price=growing_price(double.full_history(cell.model, cell.system_prompt, cell.turns)),
        )
        notes = [f"unread behind the cursor at {replayed.cursor}: {unread[:20]}"] if unread else []
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
