# ruff: noqa: INP001, T201  # a script of its own, which prints
r"""A cron job asks once a day, always in one session, and prints the answer: cron mails it.

    DATABASE_URL=postgresql://…
    0 7 * * *  cd /srv/throughline && .venv/bin/python docs/examples/cron_post.py "$(date +\%F)"

These lines are for `crontab -e`, whose file nobody else reads; within the command the password would get into the log
and the list of processes. A `%` ends a command there unless it is escaped. A session's id may follow the date.

The date is the message's key: the same date again, after a crash or by hand, asks nothing twice and prints the same
answer; one that failed is asked again, up to MOST_TIMES. A session that was archived comes back from the archive. The
exit code is 0 only with an answer, 75 where trying again later may help (no worker, no database), else 1.
"""

import argparse
import asyncio
import os
import sys

from throughline.client import (
    Client,
    Limits,
    NoWorkerAvailable,
    Run,
    RunStatus,
    TemporaryError,
    ThroughlineError,
    connect,
)

AGENT, TITLE, KEY = "assistant", "Daily digest", "cron-post"
MOST_TIMES = 5


async def open_session(client: Client) -> str:
    """Return the id of the job's session, made by the first run; one that somebody archived is brought back."""
    session = await client.get_or_create_session(KEY, AGENT, title=TITLE)
    if session.archived:
        await client.unarchive_session(session.id)
    return str(session.id)


async def submit(client: Client, session: str, day: str) -> Run:
    """Submit the day's message unless an earlier call has: under the first key whose run has not failed."""
    number = 1
    while True:
        message = f"It is {day}. What should I look at today?"
        run = await client.submit(session, message, idempotency_key=f"{KEY}:{number}:{day}")
        if run.status is not RunStatus.FAILED or number == MOST_TIMES:
            return run
        number += 1


async def ask(day: str, session: str, patience: float) -> str:
    """Return the day's answer. Raises ThroughlineErrors, of these NotAnswered where the run did not succeed."""
    async with connect(user="cron", limits=Limits(no_worker_timeout_seconds=patience)) as client:
        run = await submit(client, session or await open_session(client), day)
        return (await client.wait(run.id)).answer()


def main() -> None:
    """Print the answer, or say on standard error why there is none."""
    parser = argparse.ArgumentParser(description="Ask for the digest of a day.")
    parser.add_argument("day", help="such as 2026-05-14; the message's key")
    parser.add_argument("session", nargs="?", default="", help="a session's id; else one is made, and found again")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait while there is no worker")
    given = parser.parse_args()
    try:
        print(asyncio.run(ask(given.day, given.session, given.patience)))
    except NoWorkerAvailable as error:
        print(f"{error.detail}\nThe message is kept; the next run with this day picks its answer up.", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except TemporaryError as error:
        print(error.detail, file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except ThroughlineError as error:
        sys.exit(error.detail)


if __name__ == "__main__":
    main()
