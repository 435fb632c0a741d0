"""The text of a traceback for the log, without the error's own text."""

import traceback

MAX_FRAMES = 40
"""Stack frames kept for the log: enough to reach the service's own lines above those of libraries."""


def traceback_lines(error: BaseException) -> str:
    """Return the function names and line numbers of the error's traceback, innermost first, for the log.

    The error's text is left out, because it may contain a user's words.
    """
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
