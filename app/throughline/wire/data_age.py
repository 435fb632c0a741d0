"""The header that says how old the data of an answer may be, as the service writes it and its clients read it."""

from collections.abc import Mapping
from datetime import datetime

from throughline.domain.replica import ReplicaAge

DATA_AS_OF = "Data-As-Of"
"""Name of the header. An answer of the primary has none, since it lacks nothing."""

UNKNOWN = "unknown"


def age_headers(age: ReplicaAge | None) -> dict[str, str]:
    """Return the header for an answer of this age: a time as in JSON, or UNKNOWN. None is data of the primary."""
    if age is None:
        return {}
    return {DATA_AS_OF: UNKNOWN if age.as_of is None else age.as_of.isoformat()}


def read_age(headers: Mapping[str, str]) -> ReplicaAge | None:
    """Return the age of an answer, None for data of the primary. A time that cannot be read is unknown."""
    written = headers.get(DATA_AS_OF)
    if written is None:
        return None
    try:
        return ReplicaAge(datetime.fromisoformat(written))
    except ValueError:
        return ReplicaAge(None)
