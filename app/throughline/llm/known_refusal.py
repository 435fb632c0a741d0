"""One entry of the tables of known refusals: how a server's answer is recognised, and what a user then reads.

`server_refusals.py` and `provider_refusals.py` hold the tables, and `classify_error.py` searches them.
"""

import re
from dataclasses import dataclass

from throughline.domain.errors import ModelRejected, ModelUnavailable
from throughline.llm.provider_error import Failure


@dataclass(frozen=True, slots=True)
class KnownRefusal:
    """A refusal that operators meet when they connect a model.

    - `server`: the servers that answer so; `says`: such an answer, word for word; `source`: where it is documented.
    - `pattern`: the part of the answer that recognises it. It must not need quoted texts of 16 characters or more,
      which are removed from an answer before.
    - `statuses`: the HTTP statuses it comes with; empty for a connection that failed before any answer.
    - `kind`: the error it becomes, which decides whether the call is repeated.
    - `cause` and `remedy`: our own words, shown to users. A cause begins in lower case; neither ends with a full stop.
    """

    name: str
    server: str
    says: str
    pattern: re.Pattern[str]
    statuses: frozenset[int]
    kind: type[ModelRejected] | type[ModelUnavailable]
    cause: str
    remedy: str
    source: str

    def fits(self, failure: Failure) -> bool:
        """Return whether the failure is this refusal. An error inside a stream has no status of its own."""
        if not self.statuses:
            return failure.status is None and bool(self.pattern.search(failure.connection))
        is_status_unknown = failure.in_stream and failure.status is None and bool(failure.message)
        return (failure.status in self.statuses or is_status_unknown) and bool(self.pattern.search(failure.message))


def seen(pattern: str) -> re.Pattern[str]:
    """Return `pattern` compiled so that it matches upper and lower case alike."""
    return re.compile(pattern, re.IGNORECASE)
