"""What the Slack door asks of the database, in one place."""

from dataclasses import dataclass

from app.db.connection.transactions import Transactions
from app.db.connection.wakeup import EventHub, Wakeup
from app.db.slack.conversations import SlackConversations
from app.db.slack.inbox import InboxConfig, SlackInbox
from app.db.slack.outbox import SlackOutbox
from app.db.slack.participants import ParticipantRepository
from app.db.slack.people import SlackPeople


@dataclass(frozen=True, slots=True)
class SlackDatabase:
    """The repositories of the Slack door."""

    inbox: SlackInbox
    outbox: SlackOutbox
    people: SlackPeople
    conversations: SlackConversations
    participants: ParticipantRepository


def slack_database(transactions: Transactions, hub: EventHub, config: InboxConfig) -> SlackDatabase:
    """Return the repositories; what comes in wakes what goes out."""
    outgoing = Wakeup()
    return SlackDatabase(
        inbox=SlackInbox(transactions, hub, outgoing, config),
        outbox=SlackOutbox(transactions, outgoing),
        people=SlackPeople(transactions),
        conversations=SlackConversations(transactions),
        participants=ParticipantRepository(transactions),
    )
