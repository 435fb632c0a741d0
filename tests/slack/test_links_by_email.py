"""A link by e-mail holds while Slack confirms the address of a full member, and is looked at with each profile."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import TEAM, Person, Said, say
from fakes.slack_stage import IDENTITY
from throughline.slack.maintenance import Maintenance

ANNA = Person("U0ANNA001", "Anna", "anna@example.com")
GUEST = f"slack:{TEAM}:U0ANNA001"
Look = Callable[..., Awaitable[None]]


@pytest.fixture
def look(outgoing: DeliveryStage) -> Look:
    async def look_at(person: Person | None, *, link_by_email: bool = True) -> None:
        """Have a day pass and the profile looked up as it is now."""
        people = outgoing.double.workspace.people
        people.clear()
        if person is not None:
            people[person.id] = person
        await outgoing.rows("update slack_users set looked_up_at = null")
        calls = outgoing.services.calls
        await Maintenance(outgoing.slack, calls, outgoing.clock, IDENTITY, link_by_email=link_by_email).run_once()

    return look_at


@pytest.fixture
async def first(outgoing: DeliveryStage, look: Look) -> Said:
    """Anna has written as a guest and was linked by her address."""
    said = say("mine")
    await outgoing.take(said)
    await look(ANNA)
    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]
    return said


async def who_is_anna(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    return await outgoing.rows("select u.name, p.linked_by from slack_users p join users u on u.id = p.user_id")


async def owned(outgoing: DeliveryStage) -> list[tuple[object, ...]]:
    statement = """
        select u.name, r.input ->> 'content' from runs r join sessions s on s.id = r.session_id
        join users u on u.id = s.owner_id where s.owner_id = r.owner_id order by r.seq
    """
    return await outgoing.rows(statement)


NO_LONGER = {
    "unconfirmed": replace(ANNA, is_email_confirmed=False),
    "a guest": replace(ANNA, flags=("is_restricted",)),
    "a guest of one channel": replace(ANNA, flags=("is_restricted", "is_ultra_restricted")),
    "deleted": replace(ANNA, flags=("deleted",)),
    "a bot": replace(ANNA, flags=("is_bot",)),
    "elsewhere": replace(ANNA, team="T0OTHER01"),
    "unknown": None,
}


@pytest.mark.parametrize("now", NO_LONGER.values(), ids=NO_LONGER.keys())
async def test_somebody_whose_address_is_no_longer_confirmed_is_a_guest_with_own_history(
    outgoing: DeliveryStage, first: Said, look: Look, now: Person | None
) -> None:
    await look(now)
    await outgoing.take(say("and now?", thread_ts=first.ts))

    assert await who_is_anna(outgoing) == [(GUEST, "guest")]
    assert await owned(outgoing) == [("anna@example.com", "mine"), (GUEST, "and now?")]


async def test_somebody_with_another_address_is_its_user_and_leaves_what_they_wrote(
    outgoing: DeliveryStage, first: Said, look: Look
) -> None:
    await look(replace(ANNA, email="Anna.Ray@example.com"))
    await outgoing.take(say("and now?", thread_ts=first.ts))

    assert await who_is_anna(outgoing) == [("anna.ray@example.com", "email")]
    assert await owned(outgoing) == [("anna@example.com", "mine"), ("anna.ray@example.com", "and now?")]


async def test_a_guest_whose_address_is_confirmed_again_takes_along_what_they_wrote(
    outgoing: DeliveryStage, first: Said, look: Look
) -> None:
    await look(replace(ANNA, is_email_confirmed=False))
    await outgoing.take(say("in between", thread_ts=first.ts))
    await look(ANNA)

    assert await owned(outgoing) == [("anna@example.com", "mine"), ("anna@example.com", "in between")]


@pytest.mark.usefixtures("first")
async def test_a_link_stays_where_nothing_changed_or_slack_does_not_tell_the_address(
    outgoing: DeliveryStage, look: Look
) -> None:
    await look(ANNA)
    await look(replace(ANNA, email=""))  # as for an app without the scope users:read.email

    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]


@pytest.mark.usefixtures("first")
async def test_links_stay_as_they_are_where_the_setting_is_off(outgoing: DeliveryStage, look: Look) -> None:
    await look(replace(ANNA, flags=("deleted",)), link_by_email=False)

    assert await who_is_anna(outgoing) == [("anna@example.com", "email")]


@pytest.mark.usefixtures("first")
async def test_changes_are_logged_without_addresses(look: Look) -> None:
    with capture_logs() as logs:
        await look(replace(ANNA, email="anna.ray@example.com"))
        await look(replace(ANNA, flags=("deleted",)))

    told = [(entry["slack_user"], entry["outcome"]) for entry in logs]
    assert told == [("U0ANNA001", "moved"), ("U0ANNA001", "ended")]
    assert "example.com" not in str(logs)
