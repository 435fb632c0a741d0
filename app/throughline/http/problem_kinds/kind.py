"""A kind of problem: everything that all problems with one error code share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """HTTP status, title, cause and remedy of an error code.

    `cause` and `remedy` are sentences in which only `code` is marked up. `page` is the address below `docs/` of the
    page that says more, '' if there is none.
    """

    status: int
    title: str
    cause: str
    remedy: str
    page: str = ""
