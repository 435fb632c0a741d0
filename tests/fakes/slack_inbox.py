"""Messages from Slack, taken straight into the database."""

from fakes.slack_double import TEAM
from fakes.slack_double.payloads import fresh_ts
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.slack.store.conversations import Asker, Conversation
from throughline.slack.store.database import slack_database
from throughline.slack.store.inbox import AcceptOutcome
from throughline.slack.store.people import SlackId
from throughline.slack.store.slack_events import SlackLocation, SlackMessage

_threads: dict[str, str] = {}


async def take(database: Database, text: str, *, channel: str, user: str, thread: bool = False) -> SessionId:
    """Take a message, in the channel's last thread if `thread`; return the session it went to."""
    ts = fresh_ts()
    thread_ts = _threads[channel] if thread else ts
    _threads[channel] = thread_ts
    slack, who = slack_database(database, "assistant"), SlackId(TEAM, user)
    place = SlackLocation(TEAM, channel, ts)
    message = SlackMessage(f"Ev{ts}", place, thread_ts, who, text, is_direct=channel[0] == "D", is_addressed=True)
    assert await slack.inbox.accept(message) is AcceptOutcome.ACCEPTED
    person = await slack.people.find(who)
    assert person is not None
    found = await slack.conversations.latest(TEAM, channel, Asker(who, person.user_id))
    assert isinstance(found, Conversation)
    return found.session_id
