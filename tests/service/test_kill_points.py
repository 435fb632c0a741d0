"""Kill -9 at the places that matter most, the answer's in every run; `make chaos` does it at all of them."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from chaos.bench import FORMS, Form, open_bench
from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.grounds import Grounds, lay_out
from chaos.notes import check_notes
from chaos.points import KillPoint, Side
from chaos.stored import read_stored
from chaos.turns import KINDS, TurnKind

SERVE, WORKER = FORMS
END = "update runs + update sessions + insert messages + insert run_events"

pytestmark = pytest.mark.slow


@pytest.fixture
async def grounds(folder: Path, database_url: str) -> AsyncGenerator[Grounds]:
    async with lay_out(folder, database_url=database_url, data_dir=folder / "data") as made:
        yield made


def kind_named(name: str) -> TurnKind:
    return next(kind for kind in KINDS if kind.name == name)


def found(trace: Sequence[KillPoint], side: Side, label: str, times: int = 1) -> KillPoint:
    """Find the `times`-th passing of what is labelled so in a trace."""
    points = [point for point in trace if point.side is side and point.place.label.startswith(label)]
    assert len(points) >= times, f"the turn no longer comes past {label!r}: {sorted({p.place.label for p in trace})}"
    return points[times - 1]


@pytest.mark.parametrize(
    ("form", "kind", "places"),
    [
        pytest.param(
            SERVE,
            "plain",
            [(Side.AFTER, "insert runs", 1), (Side.BEFORE, "model text", 2)],
            id="while a message is accepted and answered",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            SERVE,
            "plain",
            [(Side.BEFORE, END, 1), (Side.AFTER, END, 1)],
            id="while the answer is stored",
        ),
        pytest.param(
            WORKER,
            "tools",
            [
                (Side.AFTER, "update sessions + insert messages", 2),
                (Side.AFTER, "tool note_once", 1),
                (Side.AFTER, "update sessions + insert messages", 4),
            ],
            id="while tools are called",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            WORKER,
            "compaction",
            [(Side.AFTER, "insert summaries", 1), (Side.BEFORE, "commit", 2)],
            id="while a summary is written and adopted",
            marks=pytest.mark.proof,
        ),
    ],
)
async def test_a_process_that_is_killed_loses_nothing_and_does_nothing_twice(
    grounds: Grounds, form: Form, kind: str, places: list[tuple[Side, str, int]]
) -> None:
    async with open_bench(grounds, form, grounds.database_url) as bench:
        trace = await bench.trace(kind_named(kind))
        reached = [await bench.kill_at(kind_named(kind), found(trace, *place)) for place in places]

    stored = await read_stored(grounds.database_url)
    findings = [*check(bench.client.log, stored), *check_read(stored, read_calls(grounds.calls_log)), *bench.late]
    assert findings == []
    assert check_notes(grounds.notes) == ()
    assert any(session.through_position for session in stored.sessions) == (kind == "compaction")
    assert reached == [True] * len(places)
