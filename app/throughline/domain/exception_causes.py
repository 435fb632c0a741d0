"""The exceptions inside an exception group, which says by itself only how many there are.

Plugins raise groups where they use task groups, as clients of other services do: a 404 arrives inside of one or two.
"""

import traceback

MAX_FRAMES = 40
"""Stack frames kept for the log: enough to reach the service's own lines above those of libraries."""


def traceback_lines(error: BaseException) -> str:
    """Return the function names and line numbers of the error's traceback, innermost first, for the log.

    The error's text is left out, because it may contain a user's words.
    """
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))


MOST_CAUSES = 3
MOST_VISITED = 100
"""Most exceptions and groups looked at, so that a group of groups without end costs little."""


def causes_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return the first exceptions that are no groups inside a group of any depth, `error` alone if it is no group."""
    waiting, found = [error], list[BaseException]()
    for _ in range(MOST_VISITED):
        if not waiting or len(found) == MOST_CAUSES:
            break
        first = waiting.pop()
        if isinstance(first, BaseExceptionGroup):
            waiting.extend(reversed(first.exceptions))
        else:
            found.append(first)
    return tuple(found) or (error,)


def only_cause_of(error: BaseException) -> BaseException:
    """Return the exception inside a group if there is one alone, else `error`."""
    causes = causes_of(error)
    return causes[0] if len(causes) == 1 else error


def class_names(error: BaseException) -> str:
    """Return the class of an exception, or the classes of those inside a group, separated by commas."""
    return ", ".join(dict.fromkeys(type(cause).__name__ for cause in causes_of(error)))


def class_and_text(error: BaseException) -> str:
    """Return class and text of an exception, or of those inside a group, separated by semicolons."""
    return "; ".join(dict.fromkeys(f"{type(cause).__name__}: {cause}" for cause in causes_of(error)))
