# ruff: noqa: INP001, T201  # a script of its own, which prints
r"""A cron job asks once a day, always in one session, and prints the answer: cron mails it.

    0 7 * * *  DATABASE_URL=postgresql://… .venv/bin/python docs/examples/cron_post.py "$(date +\%F)" [SESSION]

The date is the message's key: the same date again, after a crash or by hand, asks nothing twice and prints the same
answer. The exit code is 0 only with an answer, 75 where trying again later may help (no worker, no database), else 1.
"""

import argparse
import asyncio
import os
import sys

from app.client import Client, NoWorkerAvailable, TemporaryError, ThroughlineError, connect

TITLE, KEY = "Daily digest", "daily-digest"


async def find_session(client: Client) -> str:
    """Return the id of the job's session, made by its first run, once even where two run at the same time."""
    async for session in client.sessions(title=TITLE):
        return str(session.id)
    return str((await client.new_session("assistant", title=TITLE, idempotency_key=KEY)).id)


async def ask(day: str, session: str) -> str:
    """Return the day's answer. Raises ThroughlineErrors, of these NotAnswered where the run did not succeed."""
    async with connect(user="cron") as client:
        run = await client.submit(
            session or await find_session(client),
            f"It is {day}. What should I look at today?",
            idempotency_key=f"{KEY}:{day}",
        )
        return (await client.wait(run.id)).answer()


def main() -> None:
    """Print the answer, or say on standard error why there is none."""
    parser = argparse.ArgumentParser(description="Ask for the digest of a day.")
    parser.add_argument("day", help="such as 2026-05-14; the message's key")
    parser.add_argument("session", nargs="?", default="", help="a session's id; else one is made, and found again")
    given = parser.parse_args()
    try:
        print(asyncio.run(ask(given.day, given.session)))
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
