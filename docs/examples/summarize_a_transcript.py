# ruff: noqa: INP001, T201  # a script of its own, which prints
"""A conversation kept elsewhere, summarised and then summarised further: no service and no database is needed.

    .venv/bin/python docs/examples/summarize_a_transcript.py [MODEL]

The model is `offline` unless one is named, such as `openai:gpt-4o-mini` with its key in OPENAI_API_KEY.
"""

import asyncio
import sys

from throughline.client import ThroughlineError
from throughline.client.summarize import summarize_messages

MONDAY = [
    {"role": "user", "content": "We ship the harbour ledger on 14 May. Never deploy it on a Friday."},
    {"role": "assistant", "content": "Noted: 14 May, and no deployment on a Friday. Where does the ledger live?"},
    {"role": "user", "content": "In /srv/ledger on host quay-3, behind port 8443. Anna owns the certificates."},
    {"role": "assistant", "content": "Then I need Anna's certificates before the rehearsal on 12 May."},
]
TUESDAY = [
    {
        "role": "user",
        "content": "We moved it: the ledger ships on 21 May, and Boris owns the certificates now.",
    },
    {"role": "assistant", "content": "Understood: 21 May, certificates from Boris. The rehearsal moves to 19 May."},
]


async def main(model: str) -> None:
    """Summarise Monday, then both days, with what Monday's summary says in place of its messages."""
    monday = await summarize_messages(MONDAY, model=model)
    print(f"Monday:\n{monday}\n")
    both = await summarize_messages(
        TUESDAY, monday, model=model, max_tokens=400, instructions="Keep every date and owner."
    )
    print(f"Monday and Tuesday:\n{both}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "offline"))
    except ThroughlineError as error:
        sys.exit(error.detail)
