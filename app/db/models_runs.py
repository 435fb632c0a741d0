"""The tables of turns: runs and their events, summaries, and what was learned of each model's counting."""

from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Identity,
    Index,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models import SOURCES
from app.db.tables import Base, EmptyList, EmptyString, Id, Json, Key, No, Now, String, Time, Zero, one_of
from app.domain.events import EventType
from app.domain.run import RunStatus
from app.domain.summary import SummaryState

WAITING = "status in ('queued', 'running')"


class RunRow(Base):
    """One turn, with its input. Who writes for it holds its lease and knows its `fence`."""

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint(one_of("status", tuple(status.value for status in RunStatus)), name="status"),
        CheckConstraint(one_of("source", SOURCES), name="source"),
        CheckConstraint("(status = 'running') = (lease_until is not null)", name="lease"),
        CheckConstraint("length(idempotency_key) <= 255", name="idempotency_key_length"),
        UniqueConstraint("session_id", "id"),
        Index(
            "runs_idempotency",
            "owner_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key is not null"),
        ),
        Index("runs_one_running", "session_id", unique=True, postgresql_where=text("status = 'running'")),
        Index("runs_waiting", "owner_id", "seq", postgresql_where=text("status = 'queued'")),
        Index("runs_held", "owner_id", postgresql_where=text("status = 'running'")),
        Index("runs_served", "owner_id", "started_at", postgresql_where=text("started_at is not null")),
        Index("runs_line", "session_id", "seq", postgresql_where=text(WAITING)),
        Index("runs_unread", "session_id", "seq", postgresql_where=text("is_unread")),
        {"postgresql_with": {"fillfactor": 70}},
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    agent: Mapped[String]
    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    status: Mapped[String]
    input: Mapped[Json]
    source: Mapped[String]
    author: Mapped[str | None] = mapped_column(Text)
    actor: Mapped[str | None] = mapped_column(Text)
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    fingerprint: Mapped[EmptyString]
    worker: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[Time | None]
    fence: Mapped[Zero]
    attempt: Mapped[Zero]
    cancel_requested: Mapped[No]
    is_unread: Mapped[No]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    error_type: Mapped[str | None] = mapped_column(Text)
    error_detail: Mapped[str | None] = mapped_column(Text)
    context: Mapped[Json | None]
    created_at: Mapped[Now]
    started_at: Mapped[Time | None]
    finished_at: Mapped[Time | None]


class RunEventRow(Base):
    """What a reader can resume from. Unlogged: after a crash of the database readers start over from the messages.

    No foreign key: every insert already holds its run's row, and a key check per event would cost more than the row.
    """

    __tablename__ = "run_events"
    __table_args__ = (
        CheckConstraint(one_of("type", tuple(event.value for event in EventType)), name="type"),
        {"prefixes": ["UNLOGGED"]},
    )

    run_id: Mapped[Key]
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[String]
    data: Mapped[Json] = mapped_column(comment="an event, pointing at the message or run it shows")
    created_at: Mapped[Now]


class SummaryRow(Base):
    """One stretch with its own summary; `read_hash` identifies what was read for it, and is there once.

    Those of prompt version 1 were stored with every adoption, some more than once: they are kept and never found again.
    """

    __tablename__ = "summaries"
    __table_args__ = (
        CheckConstraint("from_position > 0 and from_position <= through_position", name="positions"),
        Index(
            "summaries_once",
            "session_id",
            "read_hash",
            unique=True,
            postgresql_where=text("prompt_version <> '1'"),
        ),
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    from_position: Mapped[int]
    through_position: Mapped[int]
    through_id: Mapped[Id]
    level: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    text: Mapped[String]
    token_count: Mapped[int]
    model: Mapped[String]
    prompt_version: Mapped[String]
    read_hash: Mapped[String]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    duration_seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[Now]


class SummaryVersionRow(Base):
    """One version of a session's summary: the stretches in it, the text made of them, and how far it reaches.

    A prepared one has no number yet; `base_version` is the session's `summary_version` it was written on. `run_id` is
    the turn that wrote it, for whoever looks into a case: no key, since nothing is looked up by it.
    """

    __tablename__ = "summary_versions"
    __table_args__ = (
        CheckConstraint(one_of("state", tuple(state.value for state in SummaryState)), name="state"),
        CheckConstraint("version is not null or state = 'prepared'", name="version"),
        CheckConstraint("base_version is not null or state <> 'prepared'", name="base_version"),
        UniqueConstraint("session_id", "version"),
        Index("summary_versions_one_adopted", "session_id", unique=True, postgresql_where=text("state = 'adopted'")),
        Index("summary_versions_one_prepared", "session_id", unique=True, postgresql_where=text("state = 'prepared'")),
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    version: Mapped[int | None]
    state: Mapped[String]
    stretch_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    text: Mapped[String]
    ledger: Mapped[EmptyList]
    token_count: Mapped[int]
    through_id: Mapped[Id]
    through_position: Mapped[int]
    model: Mapped[String]
    created_at: Mapped[Now]
    base_version: Mapped[int | None]
    run_id: Mapped[Id | None]


class TokenCalibrationRow(Base):
    """What was learned of how a model's provider counts."""

    __tablename__ = "token_calibration"
    __table_args__ = (CheckConstraint("ratio > 0", name="ratio"), CheckConstraint("samples >= 0", name="samples"))

    model: Mapped[str] = mapped_column(Text, primary_key=True)
    ratio: Mapped[float] = mapped_column(Float)
    samples: Mapped[int]
    learned_window: Mapped[int | None]
    updated_at: Mapped[Now]
