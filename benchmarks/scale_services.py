"""Starts what `benchmarks.scale_out` measures: workers and APIs as processes of their own, on one database."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.instant_service import SECONDS
from benchmarks.processes import Running, ServiceOptions, run_service, run_worker
from benchmarks.throughput_load import Door

MODEL = "double-128k-cl100k"
KEY = "a-key-for-the-benchmark-of-scale-out"
AGENT = """\
name: plain
system_prompt: You are a helpful assistant.
context: {max_messages_before_summary: 1000000}
"""
"""No summaries: the model in the process can write none that is taken, and what is measured is turns."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The processes of the service."""

    workers: Sequence[Running]
    apis: Sequence[Running]

    def doors(self, sessions: int, owners: int) -> list[Door]:
        """Return a door for each session: client i asks API i mod their number, for owner i mod theirs."""
        return [
            Door(
                self.apis[number % len(self.apis)].url,
                {"Authorization": f"Bearer {KEY}", "On-Behalf-Of": f"user-{number % owners}"},
            )
            for number in range(sessions)
        ]


@dataclass(frozen=True, slots=True)
class Ground:
    """What the processes run on: a folder for their agents and logs, the database, and how long the model takes."""

    folder: Path
    database_url: str
    model_seconds: float

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of all processes."""
        return {
            "DATABASE_URL": self.database_url,
            "BOOTSTRAP_API_KEY": KEY,
            SECONDS: f"{self.model_seconds:g}",
        }


@contextmanager
def run_cluster(ground: Ground, *, workers: int, apis: int) -> Iterator[Cluster]:
    """Run so many of each; all are ready once the block begins."""
    agents = ground.folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "plain.yaml").write_text(AGENT)
    working = ServiceOptions(
        folder=ground.folder,
        model=MODEL,
        agents_dir=agents,
        environment=ground.environment,
        module="benchmarks.instant_service",
    )
    serving = ServiceOptions(
        folder=ground.folder,
        model=MODEL,
        agents_dir=agents,
        environment=ground.environment,
        arguments=("--no-worker",),
        module="benchmarks.instant_service",
    )
    with ExitStack() as stack:
        yield Cluster(
            workers=[stack.enter_context(run_worker(working)) for _ in range(workers)],
            apis=[stack.enter_context(run_service(serving)) for _ in range(apis)],
        )
