"""The table of the processes that use this database."""

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped

from throughline.db.tables.columns import Base, Key, Now, String, Time, one_of, vacuumed
from throughline.domain.service_status import ProcessKind


class ProcessRow(Base):
    """A process at its last heartbeat, without any user data.

    Unlogged: an idle service causes no disk writes, and after a crash each process reappears with its next heartbeat.
    """

    __tablename__ = "processes"
    __table_args__ = (
        CheckConstraint(one_of("kind", tuple(kind.value for kind in ProcessKind)), name="kind"),
        {"prefixes": ["UNLOGGED"], "postgresql_with": vacuumed(500, share=0, fillfactor=50)},
    )

    id: Mapped[Key]
    kind: Mapped[String]
    name: Mapped[String]
    version: Mapped[String]
    started_at: Mapped[Time]
    heartbeat_at: Mapped[Now]
    concurrency: Mapped[int]
    open_turns: Mapped[int]
    jobs_in_hand: Mapped[int]
    is_claiming: Mapped[bool]
    is_listening: Mapped[bool]
