"""Places that are shared: nobody takes them all, and what is given back can be taken again."""

from uuid import UUID

from throughline.domain.basic_types import UserId
from throughline.execution.compute_threads import LimitReached, OwnerLimits

ANNA, BERT, CARL = (UserId(UUID(int=number)) for number in (1, 2, 3))


def test_an_owner_keeps_to_a_share() -> None:
    places = OwnerLimits(most=5, most_of_owner=2)

    assert [places.take(ANNA), places.take(ANNA), places.take(ANNA)] == [None, None, LimitReached.BY_OWNER]
    assert places.take(BERT) is None


def test_all_keep_to_what_there_is() -> None:
    places = OwnerLimits(most=3, most_of_owner=2)

    assert [places.take(ANNA), places.take(ANNA), places.take(BERT)] == [None] * 3
    assert [places.take(CARL), places.take(None)] == [LimitReached.BY_ALL] * 2


def test_what_belongs_to_nobody_has_no_share() -> None:
    places = OwnerLimits(most=3, most_of_owner=1)

    assert [places.take(None) for _ in range(3)] == [None] * 3


def test_a_place_given_back_is_free() -> None:
    places = OwnerLimits(most=1, most_of_owner=1)
    places.take(ANNA)
    places.give_back(ANNA)

    assert places.take(BERT) is None
