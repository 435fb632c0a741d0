"""A session as a model call, report or summary sees it: what is loaded of it, and what the run under way has added."""

from dataclasses import dataclass, replace

from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import AdoptedSummary, Prepared


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one query loads of a session, and what a run adds to it.

    `history` are the newest messages after the cursor from other runs, oldest first; those before them were left out
    where they are too many. `own` are the rows of the run under way, whatever their size. `pinned` are the pinned
    messages of other runs that are in neither, oldest first: behind the cursor, or left out. `prepared` is the newest
    prepared summary that builds on the session's present version, `adopted` what the session's version was when it was
    loaded, each None where there is none.
    `resumed_calls` are the tool calls that a dead process left without a result, by their place in the run (the `step`
    of an OpenCall): whether they ran is unknown.
    """

    session: Session
    history: tuple[Message, ...] = ()
    own: tuple[Message, ...] = ()
    pinned: tuple[Message, ...] = ()
    prepared: Prepared | None = None
    adopted: AdoptedSummary | None = None
    resumed_calls: frozenset[str] = frozenset()

    def with_own(self, *messages: Message) -> "Conversation":
        """Return the conversation with further rows of this run."""
        return replace(self, own=(*self.own, *messages))
