"""All kinds of problems by their error code: the only table of HTTP statuses."""

from collections.abc import Mapping

from throughline.api.http.problem_kinds.kind import ProblemKind
from throughline.api.http.problem_kinds.of_conflicts import CONFLICT_KINDS
from throughline.api.http.problem_kinds.of_models import MODEL_KINDS
from throughline.api.http.problem_kinds.of_requests import REQUEST_KINDS
from throughline.api.http.problem_kinds.of_service import SERVICE_KINDS

KINDS_BY_SUBJECT: Mapping[str, Mapping[str, ProblemKind]] = {
    "The request": REQUEST_KINDS,
    "Conflicts and queues": CONFLICT_KINDS,
    "The service": SERVICE_KINDS,
    "The model": MODEL_KINDS,
}
"""The kinds by the headings of the reference of errors."""

PROBLEM_KINDS: Mapping[str, ProblemKind] = {
    code: kind for kinds in KINDS_BY_SUBJECT.values() for code, kind in kinds.items()
}
