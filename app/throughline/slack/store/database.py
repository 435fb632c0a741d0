"""All repositories of the Slack interface in one object, and what the service has to know of their tables."""

from dataclasses import dataclass

from sqlalchemy import inspect

from throughline.db.connection.pool import Statement
from throughline.db.connection.signals import Signal
from throughline.db.database import Database
from throughline.db.front_end_storage import ExpiringRows, FrontEndStorage
from throughline.db.retention import delete_batch
from throughline.db.statements.sql import sql
from throughline.db.tables.columns import Base
from throughline.slack.store import tables
from throughline.slack.store.conversations import SlackConversations
from throughline.slack.store.inbox import InboxConfig, SlackInbox
from throughline.slack.store.outbox import CallQuestions, SlackOutbox
from throughline.slack.store.people import PeopleLinks, SlackPeople
from throughline.slack.store.slack_events import IS_ANY_SHARED, OWNER_FOR, Participants

KEPT_HOURS = 168
EARLY_EDIT_HOURS = 24

_PEOPLE = "select p.team_id, p.slack_user_id from slack_users p where p.user_id = :id"


def _batch(rows: type[Base], old: str, *, change: str = "") -> Statement:
    key = ", ".join(column.name for column in inspect(rows).primary_key)
    return delete_batch(rows.__tablename__, old, key=key, change=change)


STORAGE = FrontEndStorage(
    expiring={
        "slack_events": ExpiringRows(KEPT_HOURS, _batch(tables.SlackEventRow, "created_at < {before}")),
        "slack_deliveries": ExpiringRows(KEPT_HOURS, _batch(tables.SlackDeliveryRow, "finished_at < {before}")),
        "slack_departures": ExpiringRows(KEPT_HOURS, _batch(tables.SlackDepartureRow, "created_at < {before}")),
        # An edit whose message no longer arrives is cleared; its row is kept.
        "slack_early_edits": ExpiringRows(
            EARLY_EDIT_HOURS,
            _batch(
                tables.SlackEventRow,
                "early_edit is not null and cast(message_ts as numeric) < extract(epoch from {before})",
                change="set early_edit = null",
            ),
        ),
        "slack_link_codes": ExpiringRows(0, _batch(tables.SlackLinkCodeRow, "expires_at < {before}")),
    },
    erased=(
        ("", sql("delete from slack_link_codes where user_id = :id")),
        ("", sql("delete from slack_deliveries where (reader_team_id, reader_id) in ({people})", people=_PEOPLE)),
        ("", sql("delete from slack_participants where (team_id, slack_user_id) in ({people})", people=_PEOPLE)),
        ("slack_people", sql("delete from slack_users where user_id = :id returning slack_user_id")),
    ),
    shared_with=sql(
        """
        select distinct a.session_id from slack_participants a where (a.team_id, a.slack_user_id) in ({people})
        order by a.session_id
    """,
        people=_PEOPLE,
    ),
    is_any_shared=IS_ANY_SHARED,
    owner_for=OWNER_FOR,
    deliveries=sql("""
        select 'slack' as kind, count(*) filter (where d.status = 'waiting') as waiting,
            extract(epoch from now() - min(d.created_at) filter (where d.status = 'waiting'))::float8 as oldest_seconds,
            0 as retrying, count(*) filter (where d.status = 'delivering') as in_hand,
            count(*) filter (where d.status = 'failed' and d.finished_at > now() - interval '24 hours') as failed
        from slack_deliveries d where exists (select 1 from slack_conversations)
            and (d.finished_at is null or d.finished_at > now() - interval '24 hours')
            and not (d.asked_wait > 0 and exists (select 1 from runs r where r.id = d.run_id and r.status = 'waiting'))
        having exists (select 1 from slack_conversations)
    """),
)


@dataclass(frozen=True, slots=True)
class SlackDatabase:
    """The repositories of the Slack interface."""

    inbox: SlackInbox
    outbox: SlackOutbox
    asked: CallQuestions
    people: SlackPeople
    links: PeopleLinks
    conversations: SlackConversations
    participants: Participants


def slack_database(database: Database, agent: str = "") -> SlackDatabase:
    """Return the repositories of the Slack interface; `agent` is the name of the agent that answers there.

    An accepted message wakes the tasks that deliver answers.
    """
    access, outgoing = database.access, Signal()
    transactions = access.transactions
    return SlackDatabase(
        inbox=SlackInbox(transactions, access.notifier, outgoing, InboxConfig(agent, access.caps)),
        outbox=SlackOutbox(transactions, access.leases, outgoing),
        asked=CallQuestions(transactions),
        people=SlackPeople(transactions),
        links=PeopleLinks(transactions),
        conversations=SlackConversations(transactions),
        participants=Participants(transactions),
    )
