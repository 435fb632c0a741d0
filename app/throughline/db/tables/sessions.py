"""The tables of conversations: users, API keys, access tokens, sessions, messages, redactions and pins."""

from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from throughline.db.tables.columns import (
    Base,
    BigZero,
    EmptyList,
    EmptyObject,
    EmptyString,
    Id,
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
from throughline.domain.keys import SIGN_IN_SCOPES, Scope
from throughline.domain.message import Role, Source

SOURCES = tuple(source.value for source in Source)


class WriteCheckRow(Base):
    """The only row of its table, which the readiness check updates to see whether the database accepts writes."""

    __tablename__ = "write_checks"
    __table_args__ = (CheckConstraint("is_only", name="is_only"),)

    is_only: Mapped[bool] = mapped_column(Boolean, primary_key=True)
    checked_at: Mapped[Now]


class UserRow(Base):
    """A user, who may own sessions."""

    __tablename__ = "users"
    __table_args__ = (CheckConstraint("length(name) between 1 and 200", name="name_length"),)

    id: Mapped[Key]
    name: Mapped[str] = mapped_column(Text, unique=True)
    created_at: Mapped[Now]


class ApiKeyRow(Base):
    """An API key: the SHA-256 of its secret, and the prefix by which people name it.

    Of an erased user's key the row stays, without user and name: it shows that a key has existed.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint(f"scopes <@ array[{', '.join(repr(s.value) for s in Scope)}]::text[]", name="scopes"),
        CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_length"),
    )

    id: Mapped[Key]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[EmptyString]
    prefix: Mapped[str] = mapped_column(Text, unique=True)
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[Now]
    last_used_at: Mapped[Time | None]
    revoked_at: Mapped[Time | None]


class AccessTokenRow(Base):
    """A token of an API key, for one user and some or all of the user's sessions, or for a browser that signed in.

    It ends with its key and its user. `session_ids` is null if the token reaches all sessions of the user.
    """

    __tablename__ = "access_tokens"
    __table_args__ = (
        CheckConstraint(f"scopes <@ array[{', '.join(repr(s.value) for s in SIGN_IN_SCOPES)}]::text[]", name="scopes"),
        CheckConstraint("octet_length(secret_hash) = 32", name="secret_hash_length"),
    )

    id: Mapped[Key]
    key_id: Mapped[UUID] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"), index=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    session_ids: Mapped[list[UUID] | None] = mapped_column(ARRAY(Uuid))
    is_sign_in: Mapped[No]
    created_at: Mapped[Now]
    expires_at: Mapped[Time] = mapped_column(index=True)


class SessionRow(Base):
    """A conversation. `message_count` is also the last assigned position; it changes under this row's lock.

    A trigger sets `unindexed_since` when there are messages that are not in the search index. Indexing clears it.
    """

    __tablename__ = "sessions"
    functions = (
        Trigger(
            "mark_unindexed",
            """
                before update of message_count, redaction_count on sessions for each row
                    when (new.unindexed_since is null
                        and (new.message_count > old.message_count or new.redaction_count > old.redaction_count))
            """,
            "new.unindexed_since := now(); return new;",
        ),
    )
    __table_args__ = (
        CheckConstraint(one_of("source", SOURCES), name="source"),
        CheckConstraint("message_count >= 0", name="message_count"),
        CheckConstraint("summary_through_position between 0 and message_count", name="cursor"),
        CheckConstraint("(summary_through_id is null) = (summary_through_position = 0)", name="cursor_id"),
        CheckConstraint("length(idempotency_key) <= 255", name="idempotency_key_length"),
        CheckConstraint("length(external_id) between 1 and 255", name="external_id_length"),
        Index(
            "sessions_idempotency",
            "owner_id",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key is not null"),
        ),
        Index(
            "sessions_external_id",
            "owner_id",
            "external_id",
            unique=True,
            postgresql_where=text("external_id is not null"),
        ),
        # Without the many sessions that have no metadata: each turn would write an entry for its session.
        Index(
            "sessions_metadata",
            "metadata",
            postgresql_using="gin",
            postgresql_ops={"metadata": "jsonb_path_ops"},
            postgresql_where=text("metadata <> '{}'::jsonb"),
        ),
        Index("sessions_keyed", "id", postgresql_where=text("idempotency_key is not null")),
        Index("sessions_expiring", "expires_at", postgresql_where=text("expires_at is not null")),
        Index("sessions_archived", "updated_at", "id", postgresql_where=text("archived")),
        Index("sessions_newest", "owner_id", text("updated_at desc"), text("id desc")),
        Index(
            "sessions_summary_through", "summary_through_id", postgresql_where=text("summary_through_id is not null")
        ),
        Index(
            "sessions_unindexed",
            "owner_id",
            "unindexed_since",
            postgresql_where=text("unindexed_since is not null"),
        ),
        # Counters change with every message, as HOT updates if the page has room. `updated_at` is indexed.
        {"postgresql_with": vacuumed(200, fillfactor=70)},
    )

    id: Mapped[Key]
    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    agent: Mapped[String]
    title: Mapped[EmptyString]
    source: Mapped[String]
    conversation_summary: Mapped[EmptyString]
    summary_through_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("messages.id", name="sessions_summary_through_id_fkey", use_alter=True)
    )
    summary_through_position: Mapped[Zero]
    summary_version: Mapped[Zero]
    summary_tokens: Mapped[Zero]
    summary_instructions: Mapped[EmptyString]
    summary_failure: Mapped[EmptyString]
    summary_failed_at: Mapped[Time | None]
    view_state: Mapped[EmptyObject]
    redaction_count: Mapped[Zero]
    skipped_run_count: Mapped[Zero]
    message_count: Mapped[Zero]
    message_tokens: Mapped[BigZero]
    input_tokens: Mapped[BigZero]
    output_tokens: Mapped[BigZero]
    metadata_: Mapped[EmptyObject] = mapped_column("metadata")
    archived: Mapped[No]
    external_id: Mapped[str | None] = mapped_column(Text)
    idempotency_key: Mapped[str | None] = mapped_column(Text)
    fingerprint: Mapped[EmptyString]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
    unindexed_since: Mapped[Time | None]
    expires_at: Mapped[Time | None]
    summarizing_id: Mapped[Id | None]
    summarizing_since: Mapped[Time | None]
    summarizing_until: Mapped[Time | None]


class GraphStateRow(Base):
    """What the graph of a session's agent keeps besides the messages, as the run `run_id` has left it.

    It goes with its session. A redaction in the session deletes it, because it may hold any text.
    """

    __tablename__ = "graph_states"

    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    run_id: Mapped[Id]
    state: Mapped[Json]


class MessageRow(Base):
    """A stored message.

    A trigger refuses every update except a redaction, and every delete except the erasure of its session.

    Exactly one of `content` and `content_blocks` is set.
    """

    __tablename__ = "messages"
    functions = (
        # A row that is redacted or erased is changed inside a transaction that says so.
        Trigger(
            "refuse_message_change",
            "before update or delete or truncate on messages for each statement",
            """
                if tg_op = 'DELETE' and current_setting('throughline.erasure', true) = 'on' then
                    return null;
                end if;
                if tg_op = 'UPDATE' and current_setting('throughline.redaction', true) = 'on' then
                    return null;
                end if;
                raise exception 'messages are append-only: % refused', lower(tg_op)
                    using errcode = 'restrict_violation';
            """,
        ),
    )
    __table_args__ = (
        CheckConstraint(one_of("role", tuple(role.value for role in Role)), name="role"),
        CheckConstraint(one_of("source", SOURCES), name="source"),
        CheckConstraint("position > 0", name="position"),
        CheckConstraint("token_count >= 0", name="token_count"),
        CheckConstraint("(role = 'tool') = (tool_call_id is not null)", name="tool_call_id"),
        CheckConstraint("(content is null) <> (content_blocks is null)", name="one_content"),
        UniqueConstraint("session_id", "position"),
        UniqueConstraint("run_id", "step"),
        ForeignKeyConstraint(["session_id", "run_id"], ["runs.session_id", "runs.id"], name="messages_run_fkey"),
    )

    id: Mapped[Key]
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"))
    position: Mapped[int]
    role: Mapped[String]
    content: Mapped[str | None] = mapped_column(Text)
    content_blocks: Mapped[Json | None]
    tool_calls: Mapped[EmptyList]
    tool_call_id: Mapped[str | None] = mapped_column(Text)
    name: Mapped[str | None] = mapped_column(Text)
    run_id: Mapped[Id | None]
    step: Mapped[str | None] = mapped_column(Text)
    author: Mapped[str | None] = mapped_column(Text)
    source: Mapped[String]
    token_count: Mapped[Zero]
    counter: Mapped[EmptyString]
    metadata_: Mapped[EmptyObject] = mapped_column("metadata")
    created_at: Mapped[Time] = mapped_column(server_default=text("clock_timestamp()"))


class MessageReasoningRow(Base):
    """The reasoning before an assistant's message. With `is_shown` users may read it, otherwise only operators.

    It is a table of its own because turns load messages without it, and because messages never change. It goes with its
    message. A trigger deletes it when a message up to its own is redacted, which it may quote.
    """

    __tablename__ = "message_reasoning"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    text: Mapped[String]
    is_shown: Mapped[bool]


class MessageRedactionRow(Base):
    """The record of a redaction: the message, the time, and the actor who asked for it on the owner's behalf."""

    __tablename__ = "message_redactions"
    functions = (
        Trigger(
            "forget_reasoning",
            "after insert on message_redactions for each row",
            """
                delete from message_reasoning t using messages m
                where m.id = t.message_id and m.session_id = new.session_id and m.position >= new.position;
                return null;
            """,
        ),
        Trigger(
            "forget_embedding",
            "after insert on message_redactions for each row",
            """
                delete from message_embeddings e where e.session_id = new.session_id and e.position = new.position;
                return null;
            """,
        ),
    )

    message_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"), index=True)
    position: Mapped[int]
    actor: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[Now]


class MessageCopyRow(Base):
    """A link from a copy to its original, or to an original of that, which may be gone.

    With `is_kept` a user made the copy, and redaction and erasure of the original leave it. It is a separate row
    because messages never change.
    """

    __tablename__ = "message_copies"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    original_session_id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    original_position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    is_kept: Mapped[No]

    __table_args__ = (Index("message_copies_of_original", "original_session_id", "original_position"),)


class MessagePinRow(Base):
    """A pin: the message is always shown in prompts. It is a separate row because messages never change."""

    __tablename__ = "message_pins"

    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id"), primary_key=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("sessions.id"), index=True)
    created_at: Mapped[Now]
