"""The tables of summaries: segments with their texts, and versions made of them."""

from uuid import UUID

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import Base, EmptyList, Id, Key, Now, String, one_of, vacuumed
from throughline.domain.summary import SummaryState


class SummaryRow(Base):
    """A segment: messages without a gap and their summary text. `read_hash` identifies the text's input.

    `request_hash` identifies owner, model and request; it is null if no model was called. A row of level -1 is no
    segment but a model's choice of facts (`CHOICE_LEVEL`).
    """

    __tablename__ = "summaries"
    __table_args__ = (
        CheckConstraint("from_position > 0 and from_position <= through_position", name="positions"),
        UniqueConstraint("session_id", "read_hash"),
        Index("summaries_requested", "request_hash", postgresql_where=text("request_hash is not null")),
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    from_position: Mapped[int]
    through_position: Mapped[int]
    through_id: Mapped[Id]
    level: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    text: Mapped[String]
    kept_facts: Mapped[EmptyList]
    token_count: Mapped[int]
    model: Mapped[String]
    prompt_version: Mapped[String]
    read_hash: Mapped[String]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    duration_seconds: Mapped[float] = mapped_column(Float)
    created_at: Mapped[Now]
    request_hash: Mapped[str | None] = mapped_column(Text)


class SummaryVersionRow(Base):
    """A version of a session's summary: its segments, the text made of them, and the last position it covers.

    A prepared version has no number yet; `base_version` is the session's `summary_version` it builds on. `run_id` is
    the turn that wrote it, for investigations; it is no foreign key, since nothing is looked up by it.
    """

    __tablename__ = "summary_versions"
    __table_args__ = (
        CheckConstraint(one_of("state", tuple(state.value for state in SummaryState)), name="state"),
        CheckConstraint("version is not null or state = 'prepared'", name="version"),
        CheckConstraint("base_version is not null or state <> 'prepared'", name="base_version"),
        UniqueConstraint("session_id", "version"),
        Index("summary_versions_one_adopted", "session_id", unique=True, postgresql_where=text("state = 'adopted'")),
        Index("summary_versions_one_prepared", "session_id", unique=True, postgresql_where=text("state = 'prepared'")),
        # Each adoption updates the previous version, and outdated prepared versions are deleted.
        {"postgresql_with": vacuumed(200, toast=True)},
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    version: Mapped[int | None]
    state: Mapped[String]
    segment_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    text: Mapped[String]
    kept_facts: Mapped[EmptyList]
    token_count: Mapped[int]
    through_id: Mapped[Id]
    through_position: Mapped[int]
    model: Mapped[String]
    created_at: Mapped[Now]
    base_version: Mapped[int | None]
    run_id: Mapped[Id | None]
