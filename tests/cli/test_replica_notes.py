"""Answers of a replica at the command line: their age is noted on standard error."""

from datetime import UTC, datetime
from io import StringIO

import pytest

from throughline.cli.printable import printable, to_the_second
from throughline.cli.screen import Screen
from throughline.domain.replica import ReplicaAge
from throughline.wire.data_age import DATA_AS_OF, age_headers, read_age

TIME = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (None, ""),
        (ReplicaAge(None), "· a replica of the database answered: the newest changes may be missing\n"),
        (
            ReplicaAge(TIME),
            f"· a replica of the database answered: changes after {to_the_second(TIME)} may be missing\n",
        ),
    ],
)
def test_answers_of_a_replica_are_noted_apart_from_the_results(age: ReplicaAge | None, said: str) -> None:
    out, err = StringIO(), StringIO()

    Screen(out=out, err=err, width=120).note_age(age)

    assert (out.getvalue(), printable(err.getvalue())) == ("", said)


@pytest.mark.parametrize("age", [None, ReplicaAge(None), ReplicaAge(TIME)])
def test_the_header_is_read_as_it_is_written(age: ReplicaAge | None) -> None:
    assert read_age(age_headers(age)) == age


def test_a_time_that_cannot_be_read_is_unknown() -> None:
    assert read_age({DATA_AS_OF: "yesterday"}) == ReplicaAge(None)
