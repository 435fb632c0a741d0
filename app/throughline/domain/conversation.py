"""A loaded session for a model call, a report or a summary: its messages, including those of the current run."""

from dataclasses import dataclass, replace

from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import AdoptedSummary, Prepared


@dataclass(frozen=True, slots=True)
class Conversation:
    """The part of a session that one query loads, and the messages that the current run adds to it.

    `history` are the newest messages of other runs after the cursor, oldest first; older ones are left out if there are
    too many. `own` are all messages of the current run, whatever their size. `pinned` are pinned messages of other runs
    that are not in `history`, oldest first. `prepared` is the newest prepared summary that builds on the session's
    current summary version. `adopted` is the adopted version at loading. Both are None if there is no such summary.

    `resumed_calls` are tool calls without a result that a crashed process left; whether they ran is unknown. Each is
    named by its step in the run (`OpenCall.step`).
    """

    session: Session
    history: tuple[Message, ...] = ()
    own: tuple[Message, ...] = ()
    pinned: tuple[Message, ...] = ()
    prepared: Prepared | None = None
    adopted: AdoptedSummary | None = None
    resumed_calls: frozenset[str] = frozenset()

    def with_own(self, *messages: Message) -> "Conversation":
        """Return the conversation with further messages of the current run."""
        return replace(self, own=(*self.own, *messages))
