"""The tables of the search index, which can be rebuilt from messages, and of users' memories."""

from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import BIT
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import Base, EmptyObject, Key, Now, String, Zero, vacuumed


class SearchBlockRow(Base):
    """A block of consecutive indexed messages, and the analyzer that tokenized them."""

    __tablename__ = "search_blocks"
    __table_args__ = (
        CheckConstraint(
            "from_position > 0 and through_position between from_position and from_position + 65535", name="positions"
        ),
    )

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    from_position: Mapped[int] = mapped_column(primary_key=True)
    through_position: Mapped[int]
    term_count: Mapped[int] = mapped_column(BigInteger)
    analyzer: Mapped[str] = mapped_column(Text, index=True)
    created_at: Mapped[Now]


class SearchTermRow(Base):
    """The occurrences of a term in one block: an entry per message, see db/search/entries.py.

    No foreign key, which would be checked for every term: a block's terms are written and deleted with the block.
    """

    __tablename__ = "search_terms"
    __table_args__ = ({"postgresql_with": vacuumed(1_000)},)

    session_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    term: Mapped[str] = mapped_column(Text(collation="C"), primary_key=True)
    from_position: Mapped[int] = mapped_column(primary_key=True)
    entries: Mapped[list[int]] = mapped_column(ARRAY(Integer))


class EmbeddedSessionRow(Base):
    """The position up to which the messages of a session are embedded with one model."""

    __tablename__ = "embedded_sessions"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    model: Mapped[str] = mapped_column(Text, primary_key=True)
    dimensions: Mapped[int] = mapped_column(primary_key=True)
    through_position: Mapped[int]
    updated_at: Mapped[Now]


class MessageEmbeddingRow(Base):
    """The signs of a message's embedding vector: 1 for a value above 0; see db/search/message_vectors.py.

    A redaction of the message deletes the row, by a trigger.
    """

    __tablename__ = "message_embeddings"
    __table_args__ = (
        ForeignKeyConstraint(
            ["session_id", "model", "dimensions"],
            ["embedded_sessions.session_id", "embedded_sessions.model", "embedded_sessions.dimensions"],
            ondelete="CASCADE",
        ),
        CheckConstraint("length(signs) = (dimensions + 3) / 4 * 4", name="signs_length"),
        {"postgresql_with": vacuumed(1_000)},
    )

    session_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    model: Mapped[str] = mapped_column(Text, primary_key=True)
    dimensions: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    signs: Mapped[str] = mapped_column(BIT(varying=True))


class MemoryRow(Base):
    """A user's memory, with its search terms and the analyzer that made them."""

    __tablename__ = "memories"
    __table_args__ = (
        CheckConstraint("length(text) between 1 and 10000", name="text_length"),
        Index("memories_newest", "user_id", text("created_at desc"), text("id desc")),
    )

    id: Mapped[Key]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    text: Mapped[String]
    metadata_: Mapped[EmptyObject] = mapped_column("metadata")
    terms: Mapped[list[str]] = mapped_column(ARRAY(Text))
    analyzer: Mapped[String]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    text_version: Mapped[Zero]
