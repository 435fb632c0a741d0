"""The tables of turns: runs, their events, calls of models, and token count calibrations."""

from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Identity,
    Index,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import (
    Base,
    Dollars,
    EmptyString,
    Function,
    Json,
    Key,
    No,
    Now,
    String,
    Time,
    Trigger,
    Zero,
    one_of,
    vacuumed,
)
from throughline.db.tables.partitions import Partitioned, PartitionPeriod
from throughline.db.tables.sessions import SOURCES
from throughline.domain.run import RunStatus
from throughline.domain.usage_report import CallPurpose

UNFINISHED = "status in ('queued', 'running', 'waiting')"
MODEL_CALLS = Partitioned("model_calls", "id", PartitionPeriod.MONTH)
# Rows of the default partition, and of runs that outlive their day, are deleted one by one.
RUN_EVENTS = Partitioned(
    "run_events", "run_id", PartitionPeriod.DAY, is_unlogged=True, storage=vacuumed(1_000, toast=True)
)


class RunRow(Base):
    """A run: a turn with its input, its state and its result. A process writes for it only with its current `fence`."""

    __tablename__ = "runs"
    functions = (
        # A volatile function reads with a fresh snapshot: a statement that has waited for a lock would read an older
        # one. A function in `language sql` could be inlined into the statement.
        Function(
            "session_line(wanted uuid, out queued bigint, out first_id uuid)",
            """
                language plpgsql volatile as $$
                begin
                    select count(*) filter (where w.status = 'queued'), (array_agg(w.id order by w.seq))[1]
                    into queued, first_id
                    from runs w where w.session_id = wanted and w.status in ('queued', 'running', 'waiting');
                end
                $$
            """,
        ),
        # A run ends in several statements.
        Trigger(
            "forget_returned_reasoning",
            f"after update of status on runs for each row when (not (new.{UNFINISHED}))",
            "delete from returned_reasoning t where t.run_id = new.id; return null;",
        ),
    )
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
        Index("runs_keyed", "id", postgresql_where=text("idempotency_key is not null")),
        Index("runs_one_running", "session_id", unique=True, postgresql_where=text("status = 'running'")),
        Index("runs_waiting", "owner_id", "seq", postgresql_where=text("status = 'queued'")),
        Index("runs_held", "owner_id", postgresql_where=text("status = 'running'")),
        Index("runs_served", "owner_id", "started_at", postgresql_where=text("started_at is not null")),
        Index("runs_line", "session_id", "seq", postgresql_where=text(UNFINISHED)),
        Index("runs_expiring", "waits_until", postgresql_where=text("status = 'waiting'")),
        Index("runs_of_session", "session_id", "seq", "status"),
        Index("runs_by_status", "status", "seq"),
        Index("runs_skipped", "session_id", "seq", postgresql_where=text("is_skipped")),
        # A turn leaves a dead row, and dead entries at the start of the indexes that claims scan.
        {"postgresql_with": vacuumed(500, share=0.01, fillfactor=70)},
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    owner_id: Mapped[UUID]  # the session's owner; a foreign key would search all runs when a user is erased
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
    claim_id: Mapped[UUID | None]
    fence: Mapped[Zero]
    attempt: Mapped[Zero]
    cancel_requested: Mapped[No]
    is_skipped: Mapped[No]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    cache_write_tokens: Mapped[int | None]
    reasoning_tokens: Mapped[int | None]
    cost_usd: Mapped[Dollars | None]
    error_type: Mapped[str | None] = mapped_column(Text)
    error_detail: Mapped[str | None] = mapped_column(Text)
    provider_message: Mapped[str | None] = mapped_column(Text)
    context: Mapped[Json | None]
    created_at: Mapped[Now]
    started_at: Mapped[Time | None]
    finished_at: Mapped[Time | None]
    wait: Mapped[Json | None]
    waits_until: Mapped[Time | None]
    wait_count: Mapped[Zero]


class ModelCallRow(Base):
    """An answered call of a model that somebody pays for. `owner_id` is null if the call served no single user.

    `cost_usd` is null if the price was unknown. There are no foreign keys: nothing is looked up by session and run, and
    the row outlives an erased session, because it holds no text.

    Partitioned by month, so that retention drops months.
    """

    __tablename__ = "model_calls"
    partitions = MODEL_CALLS
    __table_args__ = (
        CheckConstraint(one_of("purpose", tuple(purpose.value for purpose in CallPurpose)), name="purpose"),
        Index("model_calls_by_owner", "owner_id", "created_at"),
        MODEL_CALLS.options,
    )

    id: Mapped[Key]
    owner_id: Mapped[UUID | None]
    session_id: Mapped[UUID | None]
    run_id: Mapped[UUID | None]
    agent: Mapped[EmptyString]
    model: Mapped[String]
    purpose: Mapped[String]
    input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    cache_write_tokens: Mapped[int | None]
    reasoning_tokens: Mapped[int | None]
    cost_usd: Mapped[Dollars | None]
    created_at: Mapped[Now]


class ReturnedReasoningRow(Base):
    """Parts of reasoning that a provider wants back with a step. A trigger deletes them when the step's run ends.

    `model` is the calibration key of the model that wrote them.
    """

    __tablename__ = "returned_reasoning"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    message_id: Mapped[Key]
    model: Mapped[String]
    parts: Mapped[Json]


class RunEventRow(Base):
    """A run event. A reader can resume after any of them, by `seq`.

    Unlogged: a server crash empties the table, and readers start over from the stored messages.

    Partitioned by the day on which the run was created, so that retention drops days.

    No foreign key: every insert already locks its run's row, and a key check per event would cost more than the row.
    """

    __tablename__ = "run_events"
    partitions = RUN_EVENTS
    __table_args__ = (RUN_EVENTS.options,)

    run_id: Mapped[Key]
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[String]
    data: Mapped[Json] = mapped_column(comment="an event, pointing at the message or run it shows")
    created_at: Mapped[Now]


class TokenCalibrationRow(Base):
    """The calibration of a model: how its provider's token counts differ from the service's."""

    __tablename__ = "token_calibration"
    __table_args__ = (CheckConstraint("ratio > 0", name="ratio"), CheckConstraint("samples >= 0", name="samples"))

    model: Mapped[str] = mapped_column(Text, primary_key=True)
    ratio: Mapped[float] = mapped_column(Float)
    samples: Mapped[int]
    learned_window: Mapped[int | None]
    updated_at: Mapped[Now]
