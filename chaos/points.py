"""Kill points: places of a turn, found by a trace, at which a process ends or stops itself."""

import json
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

MOST_TIMES = 3
"""Of a statement that comes again and again in one turn, so many are killed at."""

ORDERED = "orders"
"""Stands in a trace in place of a side where the process took orders."""

_WRITES = re.compile(
    r"\b(insert\s+into|update|delete\s+from|lock\s+table|notify|listen)\s+(?!skip\b|of\b|set\b)\"?([\w.]+)",
    re.IGNORECASE,
)
_LOCKS = re.compile(r"\bfor\s+(?:no\s+key\s+)?(?:update|share)\b", re.IGNORECASE)
_READS = re.compile(r"\bfrom\s+\"?([a-z_][\w.]*)", re.IGNORECASE)


class Side(StrEnum):
    """Whether the statement or call has been made yet."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The `times`-th passing of one statement or outside call in a turn."""

    label: str
    times: int


@dataclass(frozen=True, slots=True, order=True)
class KillPoint:
    """A place, and on which side of it."""

    place: Place
    side: Side

    def __str__(self) -> str:
        """Return it as it stands in tables."""
        return f"{self.side.value} {self.place.label} ({self.place.times})"


@dataclass(frozen=True, slots=True)
class Orders:
    """What a traced process does from now on: count passings again, and send itself `number` at `point`."""

    point: KillPoint | None = None
    number: int = signal.SIGKILL

    def written(self) -> str:
        """Return the orders as the text of their file."""
        point = self.point
        told = None if point is None else [point.place.label, point.place.times, point.side.value]
        return json.dumps({"point": told, "number": self.number})


def read_orders(text: str) -> Orders:
    """Return the orders written in `text`."""
    told = json.loads(text)
    if told["point"] is None:
        return Orders()
    label, times, side = told["point"]
    return Orders(KillPoint(Place(label, times), Side(side)), told["number"])


def label_of(statement: str) -> str:
    """Return a short name of an SQL statement: what it writes or reads, and four digits that tell it from others."""
    plain = " ".join(statement.split())
    digits = sha256(plain.encode()).hexdigest()[:4]
    if len(plain) < len("rollback to savepoint x;"):
        return plain.rstrip(";").lower()
    told = [f"{verb.split()[0].lower()} {table}" for verb, table in _WRITES.findall(plain)]
    if not told:
        told = [f"{'lock' if _LOCKS.search(plain) else 'read'} {table}" for table in _READS.findall(plain)[:1]]
    return f"{' + '.join(dict.fromkeys(told)) or plain[:30].lower()} #{digits}"


def read_trace(path: Path) -> tuple[KillPoint, ...]:
    """Return the points a traced process has passed since its last orders, in order."""
    points: list[KillPoint] = []
    for line in path.read_text().splitlines():
        passed = json.loads(line)
        if passed["side"] == ORDERED:
            points.clear()
        else:
            points.append(KillPoint(Place(passed["label"], passed["times"]), Side(passed["side"])))
    return tuple(points)


def points_of(traces: Sequence[Sequence[KillPoint]]) -> tuple[KillPoint, ...]:
    """Return the kill points of a kind of turn, from several traces of it.

    A point counts that most traces passed, and the first passing of everything that any trace passed: what depends on
    timing (polls, heartbeats, batches of events) is killed at too, but not as often as it happened to come.
    """
    seen = Counter(point for trace in traces for point in set(trace))
    often = len(traces) // 2 + 1
    chosen = [
        point
        for point, times in seen.items()
        if point.place.times <= MOST_TIMES and (point.place.times == 1 or times >= often)
    ]
    return tuple(sorted(chosen))
