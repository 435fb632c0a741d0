# ruff: noqa: INP001, T201  # a script of its own, which prints
"""One question to each of many users' sessions, a few at a time, as often as it takes.

    DATABASE_URL=postgresql://… .venv/bin/python docs/examples/batch_sessions.py BATCH QUESTIONS

QUESTIONS is a file with a line for each user: the user's name, a tab, the question. BATCH names the batch: with it,
each question has a key of its own, so that after a kill the same call asks no question twice, reads what was answered
meanwhile and asks the rest. Answers are printed as they come; what failed is listed at the end, with exit code 1. The
same call asks that again, and nothing else, until a question has failed MOST_TIMES; one that was cancelled stays so.
A database that is away for a minute or two is waited for; after that the batch ends, to be called again.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from throughline.client import (
    Client,
    DatabaseUnavailable,
    QueueFull,
    Run,
    RunStatus,
    SessionId,
    ThroughlineError,
    connect,
)

AT_ONCE = 20
PAUSE_SECONDS, MOST_PAUSES = 2.0, 30
MOST_TIMES = 5
AGENT, TITLE, KEY = "assistant", "Batch", "batch-sessions"


@dataclass(frozen=True)
class Question:
    """A line of the file."""

    user: str
    text: str


def read_questions(file: Path) -> list[Question]:
    """Return what is to be asked. Raises ValueError naming the line that is none, or a user that comes twice."""
    found: dict[str, Question] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        user, tab, text = line.partition("\t")
        if not tab or user in found:
            raise ValueError(f"{file}:{number}: {line[:80]!r} is not a new user's name, a tab and a question.")
        found[user] = Question(user, text)
    return list(found.values())


async def open_session(client: Client) -> SessionId:
    """Return the id of the session for the user's questions of all batches; an archived one is brought back."""
    session = await client.get_or_create_session(KEY, AGENT, title=TITLE)
    if session.archived:
        await client.unarchive_session(session.id)
    return session.id


async def submit(client: Client, session_id: SessionId, question: Question, key: str) -> Run:
    """Submit the question; where too many messages wait already, once there is room."""
    while True:
        try:
            return await client.submit(session_id, question.text, idempotency_key=key)
        except QueueFull as error:
            print(f"{question.user}: waiting: {error.detail}", file=sys.stderr)
            await asyncio.sleep(PAUSE_SECONDS)


async def submit_once_more(client: Client, session_id: SessionId, question: Question, batch: str) -> Run:
    """Submit the question unless an earlier call has: under the first key whose run has not failed, else the last."""
    number = 1
    while True:
        run = await submit(client, session_id, question, f"{KEY}:{number}:{batch}")
        if run.status is not RunStatus.FAILED or number == MOST_TIMES:
            return run
        number += 1


async def ask(everybody: Client, question: Question, batch: str) -> str:
    """Return the answer to one question."""
    client = await everybody.acting_as(question.user)
    run = await submit_once_more(client, await open_session(client), question, batch)
    return (await client.wait(run.id)).answer()


async def ask_through_restarts(everybody: Client, question: Question, batch: str) -> str:
    """Return the answer; what the client itself does not wait for while the database is away is begun again."""
    for _ in range(MOST_PAUSES):
        try:
            return await ask(everybody, question, batch)
        except DatabaseUnavailable as error:
            print(f"{question.user}: waiting: {error.detail}", file=sys.stderr)
            await asyncio.sleep(PAUSE_SECONDS)
    return await ask(everybody, question, batch)


async def ask_all(batch: str, questions: list[Question]) -> list[str]:
    """Print the answers and return what failed. Where the database stays away, ask no more and raise that."""
    failures: list[str] = []
    away: list[DatabaseUnavailable] = []
    places = asyncio.Semaphore(AT_ONCE)
    async with connect() as everybody:

        async def answer(question: Question) -> None:
            async with places:
                if away:
                    return
                try:
                    answered = await ask_through_restarts(everybody, question, batch)
                    print(f"{question.user}\t{answered!r}", flush=True)
                except DatabaseUnavailable as error:
                    away.append(error)
                except ThroughlineError as error:
                    failures.append(f"{question.user}: {error.detail}")

        async with asyncio.TaskGroup() as tasks:
            for question in questions:
                tasks.create_task(answer(question))
    if away:
        raise away[0]
    return failures


def main(batch: str, file: str) -> None:
    """Ask all, and say what failed."""
    try:
        failures = asyncio.run(ask_all(batch, read_questions(Path(file))))
    except (ThroughlineError, ValueError, OSError) as error:
        sys.exit(str(error))
    if failures:
        sys.exit("\n".join(["These have no answer:", *failures]))


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - the program, the batch and the file
        sys.exit("usage: batch_sessions.py BATCH QUESTIONS")
    main(*sys.argv[1:])
