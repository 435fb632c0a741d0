"""A program's own log lines are as they were before it connected, and ours are on standard error."""

from pathlib import Path

import pytest

from fakes.service_process import RunScript

pytestmark = pytest.mark.process

PROGRAM = """
import asyncio, structlog
from throughline.client import ThroughlineError, connect

mine, named = structlog.get_logger(), structlog.get_logger("batch", day=14)
{before}
async def main():
    async with connect("postgresql://nobody@127.0.0.1:1/nowhere"):
        pass

for _ in range(2):
    try:
        asyncio.run(main())
    except ThroughlineError:
        pass
{after}
mine.info("mine")
named.debug("named")
structlog.get_logger("throughline.db.pool").info("quiet")
structlog.get_logger("throughline.db.pool").warning("loud", tries=3)
"""
OF_HOST = (
    "structlog.configure(processors=[structlog.processors.JSONRenderer()],"
    " logger_factory=structlog.PrintLoggerFactory())"
)


async def told_by(run: RunScript, folder: Path, program: str) -> tuple[str, str]:
    script = folder / "program.py"
    script.write_text(program)
    code, answers, error_output = await run(folder, {}, script)
    assert code == 0, error_output
    return answers, error_output


async def test_a_program_that_leaves_structlog_as_it_is_keeps_its_lines(tmp_path: Path, run_alone: RunScript) -> None:
    answers, error_output = await told_by(run_alone, tmp_path, PROGRAM.format(before="", after=""))

    assert [word in answers for word in ("mine", "named", "quiet", "loud")] == [True, True, False, False]
    assert [word in error_output for word in ("mine", "named", "quiet", "loud")] == [False, False, False, True]


@pytest.mark.parametrize(("before", "after"), [(OF_HOST, ""), ("", OF_HOST)])
async def test_a_program_that_sets_structlog_up_has_its_way(
    tmp_path: Path, run_alone: RunScript, before: str, after: str
) -> None:
    answers, error_output = await told_by(run_alone, tmp_path, PROGRAM.format(before=before, after=after))

    assert answers.splitlines()[-4:] == [
        '{"event": "mine"}',
        '{"day": 14, "event": "named"}',
        '{"event": "quiet"}',
        '{"tries": 3, "event": "loud"}',
    ]
    assert error_output == ""
