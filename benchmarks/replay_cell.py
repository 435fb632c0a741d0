"""Replays one chain of turns into one session of the service, and sums up what was seen of it."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import httpx

from benchmarks.replay_check import Json, Played, find_differences, find_unread
from benchmarks.replay_cost import growing_price, repeated_tokens
from benchmarks.replay_data import Turn
from benchmarks.replay_double import DoubleControl
from benchmarks.replay_stages import Prefix, Told, adopted_ahead, prefix_of, read_turn, stage_flags
from benchmarks.replay_strategies import SHIPPED
from benchmarks.replay_table import Row

PAGE = 200
TURN_SECONDS = 330.0
STREAM = {"Accept": "text/event-stream"}
NOT_ACCEPTED = ("summary_rejected", "summary_not_worth_it", "timeout")
_UNUSED = re.compile(r'^throughline_summary_tokens_unused_total{.*reason="(\w+)".*} (\S+)$', re.MULTILINE)
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

    def with_turns(self, turns: tuple[Turn, ...]) -> "Cell":
        """Return the cell with these turns."""
        return replace(self, turns=turns)


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
        rejected, written = self._rejected_tokens(), self._written_tokens()
        replayed = self._play(cell, double)
        rejected, written = self._rejected_tokens() - rejected, self._written_tokens() - written
        played = [Played(sent.turn, sent.told.is_answered) for sent in replayed.sent]
        differences = find_differences(played, replayed.messages)
        unread = find_unread(replayed.cursor, replayed.summaries)
        full = double.full_history(cell.model, cell.system_prompt, cell.turns)
        row = replace(_measure(cell, replayed), full_history_tokens=sum(full), full_history_price=growing_price(full))
        notes = [f"unread behind the cursor at {replayed.cursor}: {unread[:20]}"] if unread else []
        row = replace(row, differences=len(differences), unread=len(unread))
        row = replace(row, rejected_tokens=rejected, summary_written_tokens=written)
        return row, [*_errors(replayed), *differences[:5], *notes]

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
            return Sent(turn, Told(is_answered=False, error=repr(error)), began, time.time())
        ended = time.time()
        if response.status_code != httpx.codes.OK:
            told = Told(is_answered=False, error=f"{response.status_code} {response.text:.300}")
            return Sent(turn, told, began, ended)
        return Sent(turn, read_turn(response.text), began, ended)

    def _messages(self, session_id: str) -> Iterator[Json]:
        after: int | None = 0
        while after is not None:
            params = {"after": after, "limit": PAGE}
            page = self._service.get(f"/v1/sessions/{session_id}/messages", params=params).raise_for_status().json()
            yield from page["data"]
            after = page["data"][-1]["position"] if page["next_cursor"] is not None else None

    def _rejected_tokens(self) -> int:
        """Return how many tokens summaries took so far that came back and were not accepted."""
        return sum(int(float(value)) for reason, value in _UNUSED.findall(self._metrics()) if reason in NOT_ACCEPTED)

    def _written_tokens(self) -> int:
        """Return how many tokens summarisers have written so far."""
        return sum(int(float(value)) for value in _WRITTEN.findall(self._metrics()))

    def _metrics(self) -> str:
        return self._service.get("/metrics").raise_for_status().text


def _errors(replayed: Replayed) -> list[str]:
    return [f"turn {number}: {sent.told.error}" for number, sent in enumerate(replayed.sent, 1) if sent.told.error]


def _measure(cell: Cell, replayed: Replayed) -> Row:
    prompts, summaries = replayed.prompts, replayed.summaries
    over = [record for record in replayed.records if record["verdict"] == "over_window"]
    fitting = [record for record in prompts if record["verdict"] != "over_window"]
    stages = [stage for sent in replayed.sent for stage in sent.told.stages]
    prefix = _prefix(replayed, prompts)
    seconds = sum(sent.ended - sent.began for sent in replayed.sent)
    return Row(
        provider=cell.provider,
        dataset=cell.dataset,
        window=cell.window,
        counting=cell.counting,
        turns=len(replayed.sent),
        prompts=len(prompts),
        compactions=sum(stage.outcome == "adopted" for stage in stages),
        adopted_ahead=sum(adopted_ahead(sent.told, sent.requests_in(summaries)) for sent in replayed.sent),
        rungs=tuple(sorted(Counter(rung for stage in stages for rung in stage.fired).items())),
        unachieved=sum(stage.outcome in {"failed", "skipped", "cancelled"} for stage in stages),
        largest_prompt=max((record["prompt_tokens"] for record in fitting), default=0),
        largest_fill=max((record["prompt_tokens"] / record["window_tokens"] for record in fitting), default=0.0),
        over_window=len(over),
        refused_turns=sum(bool(sent.requests_in(over)) for sent in replayed.sent),
        failed_turns=len(_errors(replayed)),
        invalid=sum(record["verdict"] == "invalid" for record in replayed.records),
        summary_calls=len(summaries),
        summary_tokens=sum(record["prompt_tokens"] for record in summaries),
        prompt_tokens=sum(record["prompt_tokens"] for record in fitting),
        cache_read_tokens=sum(record.get("cache_read_tokens", 0) for record in fitting),
        cursor=replayed.cursor,
        stable_prefix=prefix.share,
        stable_prefix_at_rest=prefix.share_at_rest,
        turns_per_second=len(replayed.sent) / max(seconds, 1e-9),
        strategy=cell.strategy,
        repeated_tokens=repeated_tokens(prompts),
    )


def _prefix(replayed: Replayed, prompts: Sequence[Json]) -> Prefix:
    """Flag each request with its turn's stages."""
    of_turns = [(sent.told, sent.requests_in(prompts)) for sent in replayed.sent]
    flagged = (zip(asked, stage_flags(told, asked), strict=True) for told, asked in of_turns)
    return prefix_of(itertools.chain.from_iterable(flagged))
