"""The tables of side jobs: queued and claimed jobs, recently failed jobs, and schedules."""

from uuid import UUID

from sqlalchemy import BigInteger, Identity, Index, Text, UniqueConstraint, Uuid, text
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import Base, Id, No, Now, String, Time, Zero, vacuumed


class JobRow(Base):
    """A job, waiting or, while `lease_until` is set, claimed. `seq` is its position in the queue.

    `attempt` counts starts without a recorded end, `failures` consecutive failures. `owner_id` is the user whose share
    of the job slots it takes, if any. It is no foreign key, since the job of an erased user ends by itself.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("kind", "subject"),
        Index("jobs_line", "is_continued", "seq"),
        # Few rows, constantly inserted and deleted.
        {"postgresql_with": vacuumed(200, share=0, fillfactor=70)},
    )

    id: Mapped[UUID] = mapped_column(Uuid, primary_key=True, server_default=text("gen_random_uuid()"))
    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    kind: Mapped[String]
    subject: Mapped[String]
    owner_id: Mapped[Id | None]
    is_continued: Mapped[No]
    is_asked_again: Mapped[No]
    due_at: Mapped[Now]
    worker: Mapped[str | None] = mapped_column(Text)
    lease_until: Mapped[Time | None]
    claim_id: Mapped[Id | None]
    fence: Mapped[Zero]
    attempt: Mapped[Zero]
    failures: Mapped[Zero]
    created_at: Mapped[Now]


class FailedJobRow(Base):
    """The record of a job that was given up, for operators."""

    __tablename__ = "failed_jobs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    kind: Mapped[String]
    subject: Mapped[String]
    failed_at: Mapped[Now] = mapped_column(index=True)


class JobScheduleRow(Base):
    """The latest period for which a scheduled job was queued."""

    __tablename__ = "job_schedules"

    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    period: Mapped[Time]
