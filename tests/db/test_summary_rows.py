"""Kept facts as their columns hold them, also those that another version of the service wrote."""

from throughline.db.summaries.segments import _kept_facts_from
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact


def test_what_an_older_or_a_newer_version_wrote_is_read_as_far_as_it_is_known() -> None:
    older = [["path tool", "a.py", 1], ["left_out", "3", 2]]
    newer = [["value", "5", 3, "user", "port", "", 0, 0, 0, True, "unknown"], ["mood", "glad", 4]]

    assert _kept_facts_from([*older, *newer]) == (
        KeptFact(FactKind.IDENTIFIER, "a.py", 1, Role.TOOL),
        KeptFact(FactKind.VALUE, "5", 3, Role.USER, "port"),
    )
