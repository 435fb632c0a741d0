# ruff: noqa: INP001, T201  # a script of its own, which prints
"""A program brings a tool of its own, and runs it when the model calls it.

    DATABASE_URL=… .venv/bin/python docs/examples/tool_of_a_program.py "Where is order 7?"

The agent runs in a worker, which cannot reach this program: its turn waits until the program has sent the result.
"""

import asyncio
import json
import sys

from throughline.client import AwaitedCall, Resolution, ThroughlineError, WaitKind, answer, connect, reject, result

ORDERS = {"7": "shipped on Monday", "8": "not paid yet"}
TOOLS = [
    {
        "name": "order_status",
        "description": "Tell the status of an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    }
]


def run_tool(call: AwaitedCall) -> Resolution:
    """Return the result of the call; one whose order is unknown or missing has failed."""
    order = json.loads(call.arguments or "{}").get("order")
    if order in ORDERS:
        return result(call.id, ORDERS[order])
    return result(call.id, f"There is no order {order!r}.", is_error=True)


def give(call: AwaitedCall) -> Resolution:
    """Return what the call waits for. Nobody is at this program, so it approves nothing and answers no question."""
    match call.kind:
        case WaitKind.TOOL_RESULT:
            return run_tool(call)
        case WaitKind.APPROVAL:
            return reject(call.id, "No person can be asked here.")
        case WaitKind.ANSWER:
            return answer(call.id, "No person can be asked here. Decide yourself.")


async def ask(question: str) -> None:
    """Send the question and give its run what it waits for, until the answer is there."""
    async with connect(user="example") as client:
        session = await client.new_session("assistant", title="Orders")
        run = await client.submit(session.id, question, idempotency_key=f"{session.id}:1", tools=TOOLS)
        ended = await client.wait(run.id)
        while ended.run.waiting_for is not None:
            await client.resume(run.id, *(give(call) for call in ended.run.waiting_for.calls))
            ended = await client.wait(run.id)
        print(ended.answer())


if __name__ == "__main__":
    try:
        asyncio.run(ask(" ".join(sys.argv[1:]) or "Where is order 7?"))
    except ThroughlineError as error:
        sys.exit(error.detail)
