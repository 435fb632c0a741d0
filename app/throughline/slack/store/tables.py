"""The tables of the Slack interface: people, threads, accepted events, and the outbox of answers."""

from decimal import Decimal
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    Numeric,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import Base, EmptyString, Id, Key, Now, String, Time, Zero, one_of, vacuumed

PENDING = "status in ('waiting', 'delivering')"


class SlackParticipantRow(Base):
    """A person other than the owner who may read a session and write to it, through their user."""

    __tablename__ = "slack_participants"
    __table_args__ = (
        ForeignKeyConstraint(["team_id", "slack_user_id"], ["slack_users.team_id", "slack_users.slack_user_id"]),
        Index("slack_participants_person", "team_id", "slack_user_id"),
    )

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    slack_user_id: Mapped[str] = mapped_column(Text, primary_key=True)
    created_at: Mapped[Now]


class SlackDepartureRow(Base):
    """The time at which a person left a channel, in Slack's decimal seconds; kept while older messages may arrive."""

    __tablename__ = "slack_departures"

    team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    channel_id: Mapped[str] = mapped_column(Text, primary_key=True)
    reader_team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    reader_id: Mapped[str] = mapped_column(Text, primary_key=True)
    left_ts: Mapped[Decimal] = mapped_column(Numeric)
    created_at: Mapped[Now] = mapped_column(index=True)


class SlackUserRow(Base):
    """A person of a Slack workspace and their user: a guest user of their own until linked.

    A person `unlinked` by hand is a guest whom only a code can link again.
    """

    __tablename__ = "slack_users"
    __table_args__ = (
        CheckConstraint(one_of("linked_by", ("guest", "email", "code", "unlinked")), name="linked_by"),
        Index("slack_users_looked_up", text("coalesce(looked_up_at, '-infinity')")),
    )

    team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    slack_user_id: Mapped[str] = mapped_column(Text, primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"), index=True)
    linked_by: Mapped[str] = mapped_column(Text, server_default=text("'guest'"))
    display_name: Mapped[EmptyString]
    looked_up_at: Mapped[Time | None]
    created_at: Mapped[Now]


class SlackLinkCodeRow(Base):
    """A code that links the Slack person who enters it to this user; only its SHA-256 is stored."""

    __tablename__ = "slack_link_codes"

    code_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    expires_at: Mapped[Time]


class SlackConversationRow(Base):
    """A thread the bot takes part in. Without a session, its next message opens a new one.

    `engaged_ts` is when the bot was first called into it, in Slack's decimal seconds; unknown for some old rows. With
    `thread_ts` '' the row is no thread: its session is reserved for the next new thread of a direct conversation.
    """

    __tablename__ = "slack_conversations"
    __table_args__ = (
        Index("slack_conversations_newest", "team_id", "channel_id", text("updated_at desc")),
        {"postgresql_with": vacuumed(200)},
    )

    team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    channel_id: Mapped[str] = mapped_column(Text, primary_key=True)
    thread_ts: Mapped[str] = mapped_column(Text, primary_key=True)
    session_id: Mapped[UUID | None] = mapped_column(ForeignKey("sessions.id", ondelete="SET NULL"), index=True)
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    engaged_ts: Mapped[Decimal | None] = mapped_column(Numeric)


class SlackEventRow(Base):
    """An accepted Slack message, identified by event and by location, because one mention arrives as two events.

    A row without a run may stand for a message deleted before it arrived. With an `early_edit` the message has not
    arrived, and the edit holds its new text.
    """

    __tablename__ = "slack_events"
    __table_args__ = (
        UniqueConstraint("team_id", "channel_id", "message_ts"),
        Index("slack_events_run_id_idx", "run_id", postgresql_where=text("run_id is not null")),
        Index("slack_events_early", "message_ts", postgresql_where=text("early_edit is not null")),
        {"postgresql_with": vacuumed(500)},
    )

    team_id: Mapped[str] = mapped_column(Text, primary_key=True)
    event_id: Mapped[str] = mapped_column(Text, primary_key=True)
    channel_id: Mapped[String]
    message_ts: Mapped[String]
    run_id: Mapped[UUID | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"))
    created_at: Mapped[Now] = mapped_column(index=True)
    early_edit: Mapped[dict[str, object] | None] = mapped_column(JSONB)


class SlackDeliveryRow(Base):
    """The delivery of an answer or a notice to a thread, waiting, under way or ended.

    While its run waits, it is put aside: it has asked about the run's wait number `asked_wait` and shows what the first
    `asked_given` calls were given. Text of the answer from `rest_starts` on begins a new message.
    """

    __tablename__ = "slack_deliveries"
    __table_args__ = (
        CheckConstraint(one_of("status", ("waiting", "delivering", "delivered", "failed")), name="status"),
        CheckConstraint("(status = 'delivering') = (lease_until is not null)", name="lease"),
        UniqueConstraint("run_id"),
        Index("slack_deliveries_line", "team_id", "channel_id", "thread_ts", "seq", postgresql_where=text(PENDING)),
        Index("slack_deliveries_due", "seq", postgresql_where=text(PENDING)),
        Index("slack_deliveries_finished_at_idx", "finished_at", postgresql_where=text("finished_at is not null")),
        Index(
            "slack_deliveries_of_reader",
            "team_id",
            "channel_id",
            "reader_team_id",
            "reader_id",
            text("message_ts desc"),
            postgresql_where=text("run_id is not null"),
        ),
        {"postgresql_with": vacuumed(500, share=0.01, fillfactor=70)},
    )

    id: Mapped[Key]
    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    run_id: Mapped[UUID | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    team_id: Mapped[String]
    channel_id: Mapped[String]
    thread_ts: Mapped[String]
    message_ts: Mapped[String]
    reader_id: Mapped[String]
    reader_team_id: Mapped[String]
    notice: Mapped[EmptyString]
    status: Mapped[str] = mapped_column(Text, server_default=text("'waiting'"))
    worker: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[Time | None]
    claim_id: Mapped[Id | None]
    fence: Mapped[Zero]
    attempt: Mapped[Zero]
    next_try_at: Mapped[Now]
    error: Mapped[EmptyString]
    created_at: Mapped[Now]
    finished_at: Mapped[Time | None]
    asked_wait: Mapped[Zero]
    asked_given: Mapped[Zero]
    rest_starts: Mapped[Zero]


class SlackPartRow(Base):
    """A Slack message of a delivery, posted or about to be posted; `starts` is the offset of its text in the answer.

    With a negative `number` and a `call_id` it is no part of the answer, but asks about that call.
    """

    __tablename__ = "slack_parts"
    __table_args__ = (
        CheckConstraint(one_of("status", ("sending", "open", "closed")), name="status"),
        CheckConstraint("(status = 'sending') = (ts is null)", name="ts"),
        CheckConstraint("starts >= 0", name="starts"),
        Index("slack_parts_ts_idx", "ts", postgresql_where=text("ts is not null")),
        {"postgresql_with": vacuumed(500)},
    )

    delivery_id: Mapped[UUID] = mapped_column(ForeignKey("slack_deliveries.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    ts: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text, server_default=text("'sending'"))
    starts: Mapped[int]
    created_at: Mapped[Now]
    call_id: Mapped[str | None] = mapped_column(Text)
