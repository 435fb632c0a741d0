"""Installed for a whole enterprise: each of its members is one person, whichever of its workspaces an event names."""

from collections.abc import Mapping

import pytest

from fakes.provider_double.json_types import Json
from fakes.scripted_turns import REPORT
from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import BOT_USER, Person, say
from fakes.slack_double.payloads import app_mention, edited, left, message
from fakes.slack_double.workspace import BOT_ID
from throughline.context.explain_context import ContextReport
from throughline.db.slack.people import SlackId
from throughline.db.slack.slack_events import Edited, Left, SlackMessage
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.slack.bolt import CommandReply
from throughline.slack.commands import Commands
from throughline.slack.config import Identity, SlackServices
from throughline.slack.maintenance import Maintenance
from throughline.slack.read_event import read_event
from throughline.turn.summary.reread import SummaryRequest

ENTERPRISE, FIRST, SECOND, STRANGE = "E0GRID001", "T0FIRST01", "T0SECOND1", "T0STRANGE"
GRID = Identity(ENTERPRISE, "Grid", BOT_USER, BOT_ID, FIRST)
ANNA = "U0ANNA001"
SAID = say(f"<@{BOT_USER}> hello", channel="C0GENERAL", team=FIRST)


def who(payload: Mapping[str, object]) -> SlackId:
    incoming = read_event(payload, GRID)
    assert isinstance(incoming, SlackMessage | Edited | Left)
    return incoming.who


def in_context(payload: Json, team: str = FIRST, *, shared: bool = False) -> Json:
    context = {"context_team_id": team, "context_enterprise_id": ENTERPRISE, "is_ext_shared_channel": shared}
    return payload | context


@pytest.mark.parametrize("team", [None, FIRST, SECOND, ENTERPRISE])
def test_a_member_is_the_same_person_in_every_event(team: str | None) -> None:
    events = [
        message(SAID),
        app_mention(SAID),
        edited(SAID, "hi"),
        left("C1", user=ANNA),
    ]
    for payload in events:
        payload["event"]["user_team"] = team

    assert {who(in_context(payload)) for payload in events} == {SlackId(ENTERPRISE, ANNA)}


def test_a_member_is_known_by_the_enterprise_or_the_workspace_the_event_came_by() -> None:
    found = []
    for team, context in ((ENTERPRISE, FIRST), (FIRST, SECOND), (SECOND, SECOND), (STRANGE, SECOND)):
        payload = in_context(message(SAID), context, shared=True)
        payload["event"]["user_team"] = team
        found.append(who(payload))

    assert found == [*[SlackId(ENTERPRISE, ANNA)] * 3, SlackId(STRANGE, ANNA)]


@pytest.mark.parametrize(
    ("team", "enterprise", "home"),
    [(FIRST, "", ENTERPRISE), (SECOND, ENTERPRISE, ENTERPRISE), (STRANGE, "E0STRANGE", STRANGE)],
)
async def test_a_command_names_the_same_person_as_a_message(
    outgoing: DeliveryStage, team: str, enterprise: str, home: str
) -> None:
    commands = Commands(services_of(outgoing), GRID, respond)
    code = await outgoing.slack.links.new_code(await outgoing.database.users.get_or_create("anna"))
    body = {"user_id": ANNA, "team_id": team, "enterprise_id": enterprise, "channel_id": "C1", "text": f"link {code}"}

    assert (await commands.answer(body)).text.startswith('You are "anna"')
    assert await outgoing.slack.people.find(SlackId(home, ANNA)) is not None


@pytest.mark.parametrize(("enterprise", "linked_by"), [(ENTERPRISE, "email"), ("E0STRANGE", "guest")])
async def test_a_confirmed_address_is_that_of_a_member_of_the_enterprise(
    outgoing: DeliveryStage, enterprise: str, linked_by: str
) -> None:
    anna = Person(ANNA, "Anna", "anna@example.com", team=SECOND, enterprise=enterprise)
    outgoing.double.workspace.people[ANNA] = anna
    guest = await outgoing.database.users.get_or_create(f"slack:{ENTERPRISE}:{ANNA}")
    await outgoing.rows("insert into slack_users values ($1, $2, $3)", ENTERPRISE, ANNA, guest)

    await Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, GRID, link_by_email=True).run_once()

    assert await outgoing.rows("select linked_by from slack_users") == [(linked_by,)]


def services_of(outgoing: DeliveryStage) -> SlackServices:
    async def report(_owner: UserId, _session: SessionId) -> ContextReport:
        return REPORT

    async def summarize(owner: UserId, session: SessionId, _wish: SummaryRequest) -> CompactionResult:
        return CompactionResult(
            CompactionOutcome.ADOPTED, await outgoing.database.sessions.get(owner, session), "", 900, 300
        )

    return SlackServices(outgoing.database, outgoing.slack, report, summarize, outgoing.clock)


async def respond(_url: str, _shown: CommandReply) -> None:
    """Nothing takes long here."""
