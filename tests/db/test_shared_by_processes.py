"""What the processes of one run of the tests share is there for whoever comes, however the others come and go."""

import asyncio
import sys
from pathlib import Path

import pytest

from fakes.programs import environment_for_programs
from fakes.run_folder import FOLDER, shared
from fakes.waiting import HANG_SECONDS

PROCESSES = 3
COME_AND_GO = """
import pathlib, secrets
from fakes.run_folder import run_folder, shared

def make():
    made = run_folder() / secrets.token_hex(8)
    made.touch()
    return str(made)

for _ in range(300):
    with shared("thing", make, lambda made: pathlib.Path(made).unlink()) as found:
        assert pathlib.Path(found).exists(), "it was ended already"
"""


@pytest.mark.slow
async def test_nobody_is_handed_what_another_process_has_ended(tmp_path: Path) -> None:
    environment = {**environment_for_programs(), FOLDER: str(tmp_path)}
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", COME_AND_GO, env=environment)
        for _ in range(PROCESSES)
    ]
    async with asyncio.timeout(HANG_SECONDS):
        codes = [await process.wait() for process in processes]

    assert codes == [0] * PROCESSES
    assert names_in(tmp_path) == {"thing", "thing.lock", "thing.users"}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_first_makes_a_thing_and_the_last_ends_it() -> None:
    told = []

    def make() -> str:
        told.append("made")
        return "it"

    with shared("in two tests", make, told.append) as first, shared("in two tests", make, told.append) as second:
        assert first == second == "it"

    assert told == ["made", "it"]
