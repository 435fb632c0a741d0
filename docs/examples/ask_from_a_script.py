# ruff: noqa: INP001, T201  # a script of its own, which prints
"""Another program of yours asks an agent, with nothing but the address of the database.

    DATABASE_URL=postgresql://user:password@host/name python docs/examples/ask_from_a_script.py "What is 17 * 23?"

A `throughline serve` or `throughline worker` on the same database answers, now or, if none runs, once there is one.
"""

import asyncio
import sys

from throughline.client import AnswerReset, MessageDelta, ThroughlineError, connect


async def ask(question: str) -> None:
    """Open a session, send the question, show the answer while it is written, and what the run came to."""
    async with connect(user="example") as client:
        session = await client.new_session("assistant", title="From a script")
        run = await client.submit(session.id, question, idempotency_key=f"{session.id}:1")
        async for event in client.events(run.id):
            if isinstance(event.event, MessageDelta):
                print(event.event.text, end="", flush=True)
            elif isinstance(event.event, AnswerReset):  # another worker took over and begins the answer again
                print("\n[once more]")
        ended = await client.wait(run.id)
        print(f"\n[run {ended.run.id}: {ended.run.status.value}, {ended.run.usage.output_tokens} tokens]")


if __name__ == "__main__":
    try:
        asyncio.run(ask(" ".join(sys.argv[1:]) or "Hello!"))
    except ThroughlineError as error:
        sys.exit(error.detail)
