"""The made parts of the reference of errors, one for each subject."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.reference.markdown import anchor, code, link, table
from throughline.http.route_errors import KINDS_BY_SUBJECT, ProblemKind

PAGE = "reference/errors.md"


def error_parts(docs: Path) -> dict[str, str]:
    """Return a table of error codes for each subject, by the anchor of the subject's heading."""
    return {
        anchor(subject): table(("code", "status", "cause", "remedy"), _rows(docs, kinds))
        for subject, kinds in KINDS_BY_SUBJECT.items()
    }


def _rows(docs: Path, kinds: Mapping[str, ProblemKind]) -> Iterator[tuple[str, ...]]:
    for name, kind in kinds.items():
        see = f" See {link(docs, PAGE, kind.page)}." if kind.page else ""
        yield code(name), str(kind.status), kind.cause, kind.remedy + see
