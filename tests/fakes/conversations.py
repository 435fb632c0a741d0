"""Owners, sessions, runs and messages made in one line, for tests that stand on the real database."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.db.database import Database
from app.db.sessions import NewSession
from app.domain.errors import SummaryConflict
from app.domain.ids import UserId
from app.domain.message import Message, NewMessage, Role, Source, ToolCall
from app.domain.run import ClaimedRun, Lease, OnBusy, Outcome, Run, RunInput, RunStatus, Submission, Submitted
from app.domain.session import Session
from app.domain.summary import Adoption, NewStretch
from app.turn.ports import Claimer, NewEvent

CLAIMER = Claimer(worker="worker-1", lease_seconds=30)


def user_message(text: str, *, tokens: int = 1) -> NewMessage:
    return NewMessage(role=Role.USER, content=text, source=Source.API, token_count=tokens, counter="test")


def answer_message(text: str, *, tool_calls: tuple[ToolCall, ...] = ()) -> NewMessage:
    return NewMessage(role=Role.ASSISTANT, content=text, source=Source.API, tool_calls=tool_calls, token_count=1)


def no_events(_run: Run, _answer: Message | None) -> Sequence[NewEvent]:
    return ()


@dataclass
class Conversation:
    """A session with its owner, and the verbs tests need."""

    database: Database
    owner_id: UserId
    session: Session

    async def submit(
        self,
        text: str = "Hello",
        *,
        key: str | None = None,
        fingerprint: str = "",
        on_busy: OnBusy = OnBusy.ENQUEUE,
        claimer: Claimer | None = None,
    ) -> Submitted:
        submission = Submission(
            owner_id=self.owner_id,
            session_id=self.session.id,
            input=RunInput(text),
            source=Source.API,
            idempotency_key=key,
            fingerprint=fingerprint,
            on_busy=on_busy,
        )
        return await self.database.runs.submit(submission, claimer)

    async def start(self, text: str = "Hello", *, claimer: Claimer = CLAIMER) -> ClaimedRun:
        """Submit and claim in one step."""
        claimed = (await self.submit(text, claimer=claimer)).claimed
        assert claimed is not None
        return claimed

    async def say(self, *texts: str, tokens: int = 1) -> list[Message]:
        """Run one whole turn that stores these messages."""
        claimed = await self.start()
        stored = [
            await self.database.messages.append_message(claimed.lease, f"step:{n}", user_message(text, tokens=tokens))
            for n, text in enumerate(texts)
        ]
        await self.end(claimed.lease)
        return stored

    async def end(self, lease: Lease, answer: str | None = None) -> Run:
        outcome = Outcome(RunStatus.SUCCEEDED, answer=None if answer is None else answer_message(answer))
        return await self.database.runs.finish(lease, outcome, no_events)

    async def messages(self) -> tuple[Message, ...]:
        return await self.database.messages.get_messages_after(self.session.id, None, limit=1000)

    async def reload(self) -> Session:
        return await self.database.sessions.get(self.owner_id, self.session.id)

    async def adopt(self, through: Message, text: str = "summary", *, expected: int | None = None) -> Session:
        session = await self.reload()
        version = session.summary_version if expected is None else expected
        return await self.database.messages.adopt_summary(adoption_of(session, version, through, text))

    async def tries_to_adopt(self, through: Message, text: str, *, expected: int) -> bool:
        try:
            await self.adopt(through, text, expected=expected)
        except SummaryConflict:
            return False
        return True


def adoption_of(session: Session, version: int, through: Message, text: str) -> Adoption:
    stretch = NewStretch(
        from_position=session.summary_through_position + 1,
        through_position=through.position,
        through_id=through.id,
        text=text,
        token_count=5,
        model="offline",
        prompt_version="1",
        read_hash=f"hash-{through.position}",
        duration_seconds=0.1,
        input_tokens=100,
        output_tokens=5,
    )
    return Adoption(session.id, version, stretch, text=text, token_count=5)


async def open_conversation(database: Database, owner: str = "anna", *, title: str = "") -> Conversation:
    owner_id = await database.users.get_or_create(owner)
    new = NewSession(owner_id=owner_id, agent="assistant", title=title, source=Source.API, metadata={})
    session, _ = await database.sessions.create(new)
    return Conversation(database, owner_id, session)
