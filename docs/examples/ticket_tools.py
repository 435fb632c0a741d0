# ruff: noqa: INP001  # a file of the operator's own, found beside its agent file
"""Examples of tools of your own; `tickets.yaml` beside it names them as `ticket_tools:read_ticket` and so on.

    AGENTS_DIR=docs/examples make run

Annotations become the JSON schema, the docstring the description: it is what the model knows of a tool.
"""

from throughline.tools import ToolContext, ToolFailed, not_repeatable

OPEN_TICKETS = {"T-1": "The export hangs at 99 %.", "T-2": "Please add a dark mode."}


def read_ticket(number: str) -> str:
    """Return the text of an open ticket.

    Args:
        number: such as T-1.
    """
    try:
        return OPEN_TICKETS[number]
    except KeyError:
        raise ToolFailed(f"There is no open ticket {number!r}. Open are: {', '.join(OPEN_TICKETS)}.") from None


@not_repeatable
async def comment(number: str, text: str, context: ToolContext) -> dict[str, str]:
    """Write a comment under a ticket.

    Args:
        number: such as T-1.
        text: what to write.
        context: whose run it is; the model neither sees nor writes it.
    """
    if number not in OPEN_TICKETS:
        raise ToolFailed(f"There is no open ticket {number!r}.")
    return {"ticket": number, "comment": text, "key": context.idempotency_key}  # a real one would send the key along
