"""All repositories of the Slack interface in one object."""

from dataclasses import dataclass

from throughline.db.connection.notifier import Notifier, Signal
from throughline.db.connection.transactions import Transactions
from throughline.db.slack.asked_calls import AskedCalls
from throughline.db.slack.conversations import SlackConversations
from throughline.db.slack.inbox import InboxConfig, SlackInbox
from throughline.db.slack.outbox import SlackOutbox
from throughline.db.slack.participants import ParticipantRepository
from throughline.db.slack.people import SlackPeople
from throughline.db.slack.people_links import PeopleLinks


@dataclass(frozen=True, slots=True)
class SlackDatabase:
    """The repositories of the Slack interface."""

    inbox: SlackInbox
    outbox: SlackOutbox
    asked: AskedCalls
    people: SlackPeople
    links: PeopleLinks
    conversations: SlackConversations
    participants: ParticipantRepository


def slack_database(
    transactions: Transactions, leases: Transactions, notifier: Notifier, config: InboxConfig
) -> SlackDatabase:
    """Return the repositories of the Slack interface.

    An accepted message wakes the tasks that deliver answers. Their leases are renewed through `leases`.
    """
    outgoing = Signal()
    return SlackDatabase(
        inbox=SlackInbox(transactions, notifier, outgoing, config),
        outbox=SlackOutbox(transactions, leases, outgoing),
        asked=AskedCalls(transactions),
        people=SlackPeople(transactions),
        links=PeopleLinks(transactions),
        conversations=SlackConversations(transactions),
        participants=ParticipantRepository(transactions),
    )
