"""What the Slack door asks of the database, in one place."""

from dataclasses import dataclass

from app.db.hub import EventHub
from app.db.slack_conversations import SlackConversations
from app.db.slack_inbox import InboxConfig, SlackInbox
from app.db.slack_outbox import SlackOutbox
from app.db.slack_people import SlackPeople
from app.db.transactions import Transactions
from app.db.wakeup import Wakeup


@dataclass(frozen=True, slots=True)
class SlackDatabase:
    """The repositories of the Slack door."""

    inbox: SlackInbox
    outbox: SlackOutbox
    people: SlackPeople
    conversations: SlackConversations


def slack_database(transactions: Transactions, hub: EventHub, config: InboxConfig) -> SlackDatabase:
    """Return the repositories; what comes in wakes what goes out."""
    outgoing = Wakeup()
    return SlackDatabase(
        inbox=SlackInbox(transactions, hub, outgoing, config),
        outbox=SlackOutbox(transactions, outgoing),
        people=SlackPeople(transactions),
        conversations=SlackConversations(transactions),
    )
