"""Profiles are asked for one by one: what fails for one person is no matter of the others."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure, Person, say
from fakes.slack_stage import IDENTITY
from throughline.slack.maintenance import Maintenance

THREE = ("U0ANNA001", "U0BERT001", "U0CLARA01")


def upkeep_of(outgoing: DeliveryStage) -> Maintenance:
    return Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, IDENTITY, link_by_email=False)


async def have_three_guests(outgoing: DeliveryStage) -> None:
    for user in THREE:
        outgoing.double.workspace.people[user] = Person(user, f"Name of {user}")
        await outgoing.take(say("hello", user=user, channel="D" + user[1:]))


async def named(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    return await outgoing.rows("select slack_user_id from slack_users where display_name <> '' order by 1")


async def let_pass(outgoing: DeliveryStage, minutes: int) -> None:
    await outgoing.rows(f"update slack_users set looked_up_at = looked_up_at - interval '{minutes} minutes'")


TEMPORARY = (Failure(status=503), Failure(error="missing_scope"), Failure(error="internal_error"))


@pytest.mark.parametrize("failure", TEMPORARY)
async def test_a_temporary_failure_of_one_profile_stops_no_other_and_is_soon_retried(
    outgoing: DeliveryStage, failure: Failure
) -> None:
    await have_three_guests(outgoing)
    outgoing.double.rules.fail("users.info", failure)
    maintenance = upkeep_of(outgoing)

    await maintenance.run_once()
    at_first = await named(outgoing)
    await maintenance.run_once()
    at_once = len(outgoing.double.workspace.called("users.info"))
    await let_pass(outgoing, 6)
    await maintenance.run_once()

    assert (len(at_first), at_once) == (2, 3)
    assert await named(outgoing) == [(user,) for user in THREE]
    assert len(outgoing.double.workspace.called("users.info")) == 4, "who was found is asked for tomorrow"


async def test_a_profile_that_slack_does_not_have_is_asked_for_again_tomorrow(outgoing: DeliveryStage) -> None:
    await have_three_guests(outgoing)
    del outgoing.double.workspace.people["U0ANNA001"]
    maintenance = upkeep_of(outgoing)
    asked = []

    for minutes in (0, 60, 24 * 60):
        await let_pass(outgoing, minutes)
        await maintenance.run_once()
        asked.append(len(outgoing.double.workspace.called("users.info")))

    assert asked == [3, 3, 6]
    assert len(await named(outgoing)) == 2
