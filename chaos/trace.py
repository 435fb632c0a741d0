"""The tracer inside a traced process: counts what is passed, writes it down, and obeys its orders."""

import json
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.points import ORDERED, KillPoint, Orders, Place, Side, read_orders

ORDERS = "orders.json"
TRACE = "trace.jsonl"


@dataclass(slots=True)
class Tracer:
    """Lives in the traced process. `folder` holds its orders and its trace, one file each."""

    folder: Path
    _orders: Orders | None = None
    _passed: Counter[str] = field(default_factory=Counter)
    _file: int = -1

    def obey(self) -> None:
        """Read the orders, and count from now on. Said in the trace, so that their sender knows."""
        self._orders = read_orders((self.folder / ORDERS).read_text())
        self._passed.clear()
        self._write("", 0, ORDERED)

    @asynccontextmanager
    async def passing(self, label: str) -> AsyncGenerator[None]:
        """Pass the place: one statement or outside call made inside the block. What fails has no other side."""
        times = self.come_to(label)
        yield
        self.leave(label, times)

    def come_to(self, label: str) -> int:
        """Note that the place is reached; return how often it has been since the orders, for `leave`."""
        if self._orders is None:
            return 0
        self._passed[label] += 1
        self._at(label, self._passed[label], Side.BEFORE)
        return self._passed[label]

    def leave(self, label: str, times: int) -> None:
        """Note that the place lies behind."""
        if self._orders is not None and times:
            self._at(label, times, Side.AFTER)

    def _at(self, label: str, times: int, side: Side) -> None:
        self._write(label, times, side.value)
        if self._orders is not None and self._orders.point == KillPoint(Place(label, times), side):
            number, self._orders = self._orders.number, Orders()
            os.kill(os.getpid(), number)

    def _write(self, label: str, times: int, side: str) -> None:
        if self._file < 0:
            self._file = os.open(self.folder / TRACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        line = {"at": round(time.time(), 4), "label": label, "times": times, "side": side}
        os.write(self._file, json.dumps(line).encode() + b"\n")
