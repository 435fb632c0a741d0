"""Samples of where a process spends its CPU, and the layers they are charged to."""

import signal
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from benchmarks.processes import ROOT

INTERVAL_SECONDS = 0.002
"""Of the process's CPU time, not of the clock: who waits is not sampled. Kernels round it up to their tick."""

NEUTRAL = ""
"""The standard library works for whoever calls it."""

OTHER = "other"
LOOP = "event loop, uvicorn, starlette, fastapi"
MODEL = "LangChain, pydantic"
PACKAGES: Mapping[str, str] = {
    "asyncpg": "asyncpg",
    "sqlalchemy": "SQLAlchemy",
    "greenlet": "SQLAlchemy",
    "langgraph": "LangGraph",
    "langchain": MODEL,
    "langchain_core": MODEL,
    "langchain_openai": MODEL,
    "langchain_protocol": MODEL,
    "langsmith": MODEL,
    "pydantic": MODEL,
    "pydantic_core": MODEL,
    "openai": "openai, httpx",
    "httpx": "openai, httpx",
    "httpcore": "openai, httpx",
    "h11": "openai, httpx",
    "anyio": LOOP,
    "fastapi": LOOP,
    "httptools": LOOP,
    "starlette": LOOP,
    "uvicorn": LOOP,
    "uvloop": LOOP,
    "structlog": "structlog",
}
OUR_DATABASE = "our db code"
OUR_DOORS = "our API (api, wire)"
OUR_MODELS = "our model adapter (llm)"
OUR_TURN = "our turn and engine"
ROOMS: Mapping[str, str] = {"db": OUR_DATABASE, "api": OUR_DOORS, "wire": OUR_DOORS, "llm": OUR_MODELS}
"""Rooms of `app/`; what is not named here is turn and engine."""

STDLIB = sysconfig.get_path("stdlib")


@dataclass(frozen=True, slots=True)
class Sampled:
    """A function that was running: `layer` is the one charged, its caller's where the function is neutral."""

    layer: str
    file: str
    line: int
    name: str
    count: int


class Sampler:
    """Notes the running function of the main thread, again and again, by a signal."""

    def __init__(self) -> None:
        """Sample nothing yet."""
        self._counts: Counter[tuple[CodeType, str]] = Counter()

    def begin(self) -> None:
        """Sample from now on; only in the main thread."""
        signal.signal(signal.SIGPROF, self.take)
        signal.siginterrupt(signal.SIGPROF, False)  # noqa: FBT003  # its signature
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def end(self) -> None:
        """Take no more samples."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def take(self, _signal: int, frame: FrameType | None) -> None:
        """Count the function that runs in `frame`, and the layer that it runs for."""
        if frame is not None:
            self._counts[frame.f_code, charged(_files(frame))] += 1

    def result(self) -> list[Sampled]:
        """Return all that was sampled, most often first."""
        return [
            Sampled(layer, code.co_filename, code.co_firstlineno, code.co_qualname, count)
            for (code, layer), count in self._counts.most_common()
        ]


def charged(files: Iterable[str]) -> str:
    """Return the layer to charge for a stack: `files` are those of its functions, the running one first."""
    return next((layer for file in files if (layer := layer_of(file))), LOOP)


@cache
def layer_of(file: str) -> str:
    """Return the layer that a source file belongs to; NEUTRAL for the standard library and for generated code."""
    path = Path(file)
    if "site-packages" in path.parts:
        package = path.parts[path.parts.index("site-packages") + 1]
        return PACKAGES.get(package.removesuffix(".py"), OTHER)
    if file.startswith("<") or path.is_relative_to(STDLIB):
        return NEUTRAL
    if path.is_relative_to(ROOT / "app" / "throughline"):
        return ROOMS.get(path.relative_to(ROOT / "app" / "throughline").parts[0], OUR_TURN)
    return OTHER


def _files(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back
