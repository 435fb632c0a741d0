"""The scripts in docs/examples that use `throughline.client`, run beside a real worker with the offline model."""

import asyncio
import itertools
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.pooler import environment_of, urls_of
from fakes.programs import ROOT, Program, Start
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import run_sql, until_sql
from fakes.service_process import fork, run_worker
from fakes.shared_server import copy_data_dir
from fakes.waiting import HANG_SECONDS, until_found
from throughline.client import Client, SessionId, Source, connect
from throughline.db.database import Database
from throughline.db.sessions.import_messages import Imported
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "docs" / "examples"
AT_ONCE = 20
FSYNC_OFF = "database not durable"
"""A line of the log, on standard error: true of the tests' server, and none of its business here."""

_numbers = itertools.count()
OTHERS_SETTINGS = {"LOG_LEVEL": "info", "PORT": "tcp://10.0.0.7:80"}


@dataclass(frozen=True)
class Told:
    """What a script said before it ended."""

    code: int | None
    answers: str
    error_output: str


@pytest.fixture
def offline(database_url: str) -> Mapping[str, str]:
    return environment_of(database_url)


@dataclass
class Script:
    """A started script, and the files it writes to."""

    program: Program
    answers: Path
    error_output: Path
    heard: int = 0

    async def told(self) -> Told:
        """Return what it has said, once it has ended."""
        async with asyncio.timeout(HANG_SECONDS):
            code = await self.program.wait()
        return told_of(code, self.answers.read_text(), self.error_output.read_text())

    async def complains(self, beginning: str) -> None:
        """Return once it has complained in a further line that begins so."""

        async def is_heard() -> bool:
            has_ended = self.program.returncode is not None
            lines = self.error_output.read_text().splitlines()
            found = next((n for n in range(self.heard, len(lines)) if lines[n].startswith(beginning)), None)
            self.heard = self.heard if found is None else found + 1
            assert found is not None or not has_ended, "the script has ended"
            return found is not None

        await until_found(is_heard)


def told_of(code: int | None, answers: str, error_output: str) -> Told:
    lines = error_output.splitlines()
    return Told(code, answers, "\n".join(line for line in lines if FSYNC_OFF not in line))


async def start(offline: Mapping[str, str], folder: Path, example: str, *arguments: str) -> Script:
    """Start a script in a folder that is not ours, among settings that are not ours."""
    number = next(_numbers)
    files = folder / f"answers-{number}", folder / f"error_output-{number}"
    start = Start(folder, {**OTHERS_SETTINGS, **offline}, arguments, files[0], "", EXAMPLES / example, None, files[1])
    return Script(await fork(start), *files)


async def run(offline: Mapping[str, str], folder: Path, example: str, *arguments: str) -> Told:
    return await (await start(offline, folder, example, *arguments)).told()


def questions(folder: Path, count: int) -> str:
    file = folder / "questions.tsv"
    file.write_text("".join(f"user-{number:03}\tWhat is {number} + 1?\n" for number in range(count)))
    return str(file)


async def count_runs(database_url: str) -> int:
    return int(str((await run_sql(database_url, "select count(*) from runs"))[0][0]))


async def session_of(client: Client, user: str) -> str:
    """Return the session that the batch uses for the user."""
    acting = await client.acting_as(user)
    key = "batch-sessions"
    return str((await acting.get_or_create_session(key, "assistant", title="Batch")).id)


async def test_a_day_is_asked_once_however_often_cron_runs(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    async with run_worker(folder, offline):
        first = await run(offline, folder, "cron_post.py", "2026-05-14")
        again = await run(offline, folder, "cron_post.py", "2026-05-14")
        session = str((await run_sql(database_url, "select id from sessions"))[0][0])
        given = await run(offline, folder, "cron_post.py", "2026-05-14", session)
        next_day = await run(offline, folder, "cron_post.py", "2026-05-15", session)

    assert (first.code, first.error_output) == (0, "")
    assert first.answers.strip()
    assert first == again == given
    assert next_day.code == 0
    assert await count_runs(database_url) == 2


async def make_sessions_alike(client: Client, database: Database, title: str, job: str) -> set[SessionId]:
    """Return sessions of the user's that are none of a script's, each alike in something."""
    titled = await client.new_session("assistant", title=title)
    made = await database.sessions.import_conversation(
        Imported(titled.owner_id, "assistant", title, Source.WEB, {"job": job}), ()
    )
    return {
        titled.id,
        (await client.new_session("assistant", title=f"How do I {title}?", metadata={"job": "another"})).id,
        (await client.new_session("researcher", metadata={"job": job})).id,
        made.id,
    }


@pytest.mark.parametrize(
    ("user", "title", "job"), [("cron", "Daily digest", "cron-post"), ("user-000", "Batch", "batch-sessions")]
)
async def test_no_session_of_somebody_else_is_posted_to_and_its_own_is_found_without_a_key(
    folder: Path, offline: Mapping[str, str], database: Database, database_url: str, user: str, title: str, job: str
) -> None:
    async def post(name: str) -> Told:
        if user == "cron":
            return await run(offline, folder, "cron_post.py", name)
        return await run(offline, folder, "batch_sessions.py", name, questions(folder, 1))

    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user=user) as client:
        others = await make_sessions_alike(client, database, title, job)
        async with run_worker(folder, offline):
            first = await post("2026-05-14")
            others |= await make_sessions_alike(client, database, title, job)
            await run_sql(database_url, "update sessions set idempotency_key = null, title = 'Mine'")
            told = [first, await post("2026-05-14"), await post("2026-05-15")]
        sessions = [one async for one in client.sessions()]

    assert {one.code for one in told} == {0}
    assert told[1] == first
    assert await run_sql(database_url, "select count(distinct session_id), count(*) from runs") == [(1, 2)]
    assert len(sessions) == len(others) + 1
    assert {one.id for one in sessions if one.message_count} & others == set()


async def test_a_script_brings_its_archived_session_back(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    asked = questions(folder, 1)
    async with run_worker(folder, offline):
        for name in ("2026-05-14", "2026-05-15"):
            day = await run(offline, folder, "cron_post.py", name)
            batch = await run(offline, folder, "batch_sessions.py", name, asked)
            assert (day.code, day.error_output, batch.code, batch.error_output) == (0, "", 0, "")
            await run_sql(database_url, "update sessions set archived = true")

    assert await run_sql(database_url, "select count(distinct session_id), count(*) from runs") == [(2, 4)]


async def test_a_day_without_an_answer_is_told_by_the_exit_code(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"], user="cron") as client:
        lost = await client.new_session("nobody")
        async with run_worker(folder, offline):
            failed = await run(offline, folder, "cron_post.py", "2026-05-14", str(lost.id))
    unreadable = await run(offline, folder, "cron_post.py", "2026-05-14", "today")
    away = await run({"DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}, folder, "cron_post.py", "2026-05-14")
    nowhere = await run({"DATABASE_URL": ""}, folder, "cron_post.py", "2026-05-14")

    assert (failed.code, unreadable.code, away.code, nowhere.code) == (1, 1, os.EX_TEMPFAIL, 1)
    assert {failed.answers, unreadable.answers, away.answers, nowhere.answers} == {""}
    assert "failed" in failed.error_output
    assert "'today'" in unreadable.error_output
    assert "throughline db address" in nowhere.error_output
    assert not any("Traceback" in one.error_output for one in (failed, unreadable, away, nowhere))


async def test_the_line_for_the_crontab_works_as_it_is_written(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    described = (EXAMPLES / "cron_post.py").read_text(encoding="utf-8").split('"""')[1]
    variable, line = (line.strip() for line in described.splitlines() if line.startswith("    "))
    command = line.removeprefix("0 7 * * *").lstrip()
    for written, here in {"/srv/throughline": str(ROOT), ".venv/bin/python": sys.executable, r"\%": "%"}.items():
        assert written in command
        command = command.replace(written, here)
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "app"), **offline}
    async with run_worker(folder, offline):
        job = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdout=PIPE, stderr=PIPE, env=environment, cwd=folder
        )
        async with asyncio.timeout(HANG_SECONDS):
            answers, error_output = await job.communicate()
        told = told_of(job.returncode, answers.decode(), error_output.decode())

    assert variable.startswith("DATABASE_URL=postgresql://")
    assert "DATABASE_URL" not in line  # cron logs commands, and shows them in its mails
    assert (told.code, told.error_output) == (0, "")
    asked = await run_sql(database_url, "select input ->> 'content' from runs")
    assert re.fullmatch(r"It is \d{4}-\d\d-\d\d\. What should I look at today\?", str(asked[0][0]))


async def test_a_day_is_kept_while_there_is_no_worker(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    kept = await run(offline, folder, "cron_post.py", "2026-05-14", "--patience", "0.1")
    async with run_worker(folder, offline):
        picked_up = await run(offline, folder, "cron_post.py", "2026-05-14")

    assert (kept.code, kept.answers) == (os.EX_TEMPFAIL, "")
    assert "picks its answer up" in kept.error_output
    assert (picked_up.code, await count_runs(database_url)) == (0, 1)


@pytest.mark.parametrize("number", [2 * AT_ONCE, pytest.param(5 * AT_ONCE, marks=pytest.mark.proof)])
async def test_a_batch_that_was_killed_asks_nothing_twice_and_lists_what_failed(
    folder: Path, offline: Mapping[str, str], database_url: str, number: int
) -> None:
    asked = questions(folder, number)
    killed = await start(offline, folder, "batch_sessions.py", "may", asked)
    await until_sql(database_url, f"select from runs offset {AT_ONCE - 1}")
    killed.program.kill()
    await killed.program.wait()
    assert await count_runs(database_url) == AT_ONCE  # nobody answers, so nobody makes room
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"]) as client:
        seventh = await client.acting_as("user-007")
        session = await session_of(client, "user-007")
        cancelled = str((await run_sql(database_url, f"select id from runs where session_id = '{session}'"))[0][0])
        await seventh.cancel(cancelled)
    async with run_worker(folder, offline):
        told = await run(offline, folder, "batch_sessions.py", "may", asked)
        done = await run(offline, folder, "batch_sessions.py", "may", asked)

    assert told.code == done.code == 1
    assert told.error_output == done.error_output
    _, *failures = told.error_output.splitlines()
    assert len(failures) == 1
    assert failures[0].startswith(f"user-007: Run {cancelled} was cancelled")
    assert sorted(told.answers.splitlines()) == sorted(done.answers.splitlines())
    assert len(told.answers.splitlines()) == number - 1
    assert await count_runs(database_url) == number


OUT_OF_QUOTA = ScriptStep(failure=Failure.QUOTA)


async def test_the_same_call_asks_again_what_failed_and_only_that(
    folder: Path, settings: Mapping[str, str], database_url: str, provider_double: ProviderDouble
) -> None:
    provider_double.script(OUT_OF_QUOTA, OUT_OF_QUOTA, then_default=True)
    asked = questions(folder, 5)
    async with run_worker(folder, settings):
        told = [await run(settings, folder, "batch_sessions.py", "may", asked) for _ in range(3)]

    assert [one.code for one in told] == [1, 0, 0]
    assert [len(one.answers.splitlines()) for one in told] == [3, 5, 5]
    assert told[0].error_output.count("failed (model_quota_exhausted)") == 2
    assert set(told[0].answers.splitlines()) < set(told[1].answers.splitlines())
    assert sorted(told[1].answers.splitlines()) == sorted(told[2].answers.splitlines())
    assert await count_runs(database_url) == 7


@pytest.mark.parametrize("example", ["batch_sessions.py", "cron_post.py"])
async def test_what_fails_again_and_again_is_not_asked_for_ever(
    folder: Path, settings: Mapping[str, str], database_url: str, provider_double: ProviderDouble, example: str
) -> None:
    provider_double.script(*[OUT_OF_QUOTA] * 5)
    arguments = ["may", questions(folder, 1)] if example == "batch_sessions.py" else ["2026-05-14"]
    async with run_worker(folder, settings):
        told = [await run(settings, folder, example, *arguments) for _ in range(6)]

    assert {one.code for one in told} == {1}
    assert told[4] == told[5]
    assert len({one.error_output for one in told}) == 5
    assert await count_runs(database_url) == 5


async def test_a_batch_waits_for_room_in_a_full_line(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    urls = urls_of(database_url)
    async with connect(urls["url"], direct_url=urls["direct_url"]) as client:
        session, first = await session_of(client, "user-000"), await client.acting_as("user-000")
        for number in range(10):
            await first.submit(session, f"Message {number}")
    script = await start(offline, folder, "batch_sessions.py", "may", questions(folder, 2))
    await script.complains("user-000: waiting: ")
    async with run_worker(folder, offline):
        told = await script.told()

    assert (told.code, len(told.answers.splitlines())) == (0, 2)


async def test_a_batch_goes_on_behind_a_restart_of_the_database(folder: Path) -> None:
    database = EmbeddedConfig(folder / "data")
    await copy_data_dir(folder / "data")
    server = await EmbeddedServer.start(database)
    settings = {"DATABASE_URL": server.url}
    async with connect(server.url) as client:
        session, first = await session_of(client, "user-000"), await client.acting_as("user-000")
        for number in range(10):
            await first.submit(session, f"Message {number}")
    script = await start(settings, folder, "batch_sessions.py", "may", questions(folder, 1))
    await script.complains("user-000: waiting: Session ")
    await server.stop()
    await script.complains("user-000: waiting: The database ")
    server = await EmbeddedServer.start(database)
    async with run_worker(folder, settings):
        told = await script.told()
    await server.stop()

    assert (told.code, len(told.answers.splitlines())) == (0, 1)


async def test_a_file_that_cannot_be_read_as_questions_is_refused_before_anything_is_asked(
    folder: Path, offline: Mapping[str, str], database_url: str
) -> None:
    file = folder / "questions.tsv"
    file.write_text("anna\tHow are you?\nberta, how are you?\n")

    told = await run(offline, folder, "batch_sessions.py", "may", str(file))

    assert told.code == 1
    assert "questions.tsv:2: 'berta" in told.error_output
    assert await count_runs(database_url) == 0


async def test_a_program_runs_its_own_tool_for_the_model(
    folder: Path, settings: Mapping[str, str], database_url: str, provider_double: ProviderDouble
) -> None:
    calls = (ScriptedCall("c1", "order_status", '{"order": "7"}'), ScriptedCall("c2", "order_status", "{}"))
    provider_double.script(ScriptStep(calls=calls), ScriptStep("It was shipped on Monday."))

    async with run_worker(folder, settings):
        told = await run(settings, folder, "tool_of_a_program.py", "Where is order 7?")

    assert (told.code, told.answers, told.error_output) == (0, "It was shipped on Monday.\n", "")
    results = await run_sql(database_url, "select content from messages where role = 'tool' order by position")
    assert set(results) == {("shipped on Monday",), ("There is no order None.",)}
