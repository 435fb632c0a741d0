"""The real service under a sampling profiler: `python -m benchmarks.profiled_service serve …`, as `throughline`.

SIGUSR1 begins to sample; SIGUSR2 ends it, and writes what was sampled to the file that PROFILE_FILE names. With
PROFILE_INSTANT_MODEL=1 the model is the one of `benchmarks.instant_model`.
"""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import throughline.main
from benchmarks.instant_service import use_instant_model
from benchmarks.profile_sampler import Sampler

FILE = "PROFILE_FILE"
INSTANT_MODEL = "PROFILE_INSTANT_MODEL"


def main() -> None:
    """Run the command line of the service."""
    sampler = Sampler()
    file = Path(os.environ[FILE])

    def begin(_signal: int, _frame: FrameType | None) -> None:
        sampler.begin()

    def end(_signal: int, _frame: FrameType | None) -> None:
        sampler.end()
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps([asdict(sampled) for sampled in sampler.result()]))
        fresh.replace(file)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    if os.environ.get(INSTANT_MODEL):
        use_instant_model()
    throughline.main.main()


if __name__ == "__main__":
    main()
