"""Built-in tool `ask_user`: the run waits until a person has answered the model's question."""

from typing import Annotated, NoReturn

from pydantic import Field

from throughline.tools.tool import ToolFailed


def ask_user(
    question: Annotated[str, Field(min_length=1, max_length=4_000)],
    options: Annotated[list[str], Field(max_length=20)] | None = None,
) -> NoReturn:
    """Ask the user a question and wait for the answer, which may take hours. Ask only what you cannot find out.

    Args:
        question: the question, complete in itself
        options: answers to choose from; the user may answer otherwise
    """
    # The turn never calls it with a valid question: it waits for a person instead.
    raise ToolFailed(f"Nobody can be asked now: {question[:100]!r}, {len(options or ())} options.")
