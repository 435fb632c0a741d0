"""Owners, sessions, runs and messages made in one line, for tests that stand on the real database."""

from dataclasses import dataclass, replace

from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.runs.repository import RunRepository
from throughline.domain.basic_types import MessageId, UserId
from throughline.domain.errors import SummaryConflict
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.run import (
    ClaimedRun,
    Claimer,
    Lease,
    LeaseRenewal,
    OnBusy,
    Outcome,
    Run,
    RunInput,
    RunStatus,
    Submission,
    Submitted,
)
from throughline.domain.session import NewSession, Session
from throughline.domain.summary import Adoption, KeptFact, NewSegment, Segment, SummaryVersion
from throughline.domain.summary import Conversation as LoadedConversation

BEHIND_ALL = 1000
"""The number of the first event of an end: behind all that a test has stored."""

CLAIMER = Claimer(worker="worker-1", lease_seconds=30)


def is_loaded_whole(loaded: LoadedConversation) -> bool:
    """Whether everything after the cursor was loaded, and nothing left out for its size."""
    cursor = loaded.session.summary_through_position
    own = sum(1 for message in loaded.own if message.position > cursor)
    return len(loaded.history) + own == loaded.session.message_count - cursor


def user_message(text: str, *, tokens: int = 1, id: MessageId | None = None) -> NewMessage:  # noqa: A002  # the field
    return NewMessage(role=Role.USER, content=text, source=Source.API, token_count=tokens, counter="test", id=id)


def answer_message(text: str, *, tool_calls: tuple[ToolCall, ...] = ()) -> NewMessage:
    return NewMessage(role=Role.ASSISTANT, content=text, source=Source.API, tool_calls=tool_calls, token_count=1)


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
        agent: str | None = None,
    ) -> Submitted:
        submission = Submission(
            owner_id=self.owner_id,
            session_id=self.session.id,
            input=RunInput(text),
            source=Source.API,
            idempotency_key=key,
            fingerprint=fingerprint,
            on_busy=on_busy,
            agent=agent,
        )
        return await self.database.runs.submit(submission, claimer)

    async def start(self, text: str = "Hello", *, claimer: Claimer = CLAIMER) -> ClaimedRun:
        """Submit and claim in one step."""
        claimed = (await self.submit(text, claimer=claimer)).claimed
        assert claimed is not None
        return claimed

    async def say(self, *texts: str, tokens: int = 1) -> list[Message]:
        """Run one whole turn that stores these messages."""
        return await self.store(*(user_message(text, tokens=tokens) for text in texts))

    async def store(self, *messages: NewMessage) -> list[Message]:
        """Run one whole turn that stores these messages as they are."""
        claimed = await self.start()
        append = self.database.messages.append_message
        stored = [await append(claimed.lease, f"step:{n}", message) for n, message in enumerate(messages)]
        await self.end(claimed.lease)
        return stored

    async def end(self, lease: Lease, answer: str | None = None) -> Run:
        outcome = Outcome(RunStatus.SUCCEEDED, answer=None if answer is None else answer_message(answer))
        return await self.database.runs.finish(lease, outcome, (), BEHIND_ALL)

    async def messages(self) -> tuple[Message, ...]:
        return await self.database.messages.get_messages_after(self.session.id, None, limit=1000)

    async def reload(self) -> Session:
        return await self.database.sessions.get(self.owner_id, self.session.id)

    async def segment(self, through: Message, text: str = "summary", *, first: int = 1, level: int = 0) -> Segment:
        """Store a segment from position `first`; the same one again is the stored one."""
        return await self.database.summaries.save_segment(
            self.session.id, segment_of(through, text, first=first, level=level)
        )

    async def adoption(self, through: Message, text: str = "summary", *, expected: int | None = None) -> Adoption:
        """Store one segment for all messages up to `through` and return what there is to adopt or prepare."""
        version = (await self.reload()).summary_version if expected is None else expected
        return adoption_of(version, through, await self.segment(through, text))

    async def adopt(self, through: Message, text: str = "summary", *, expected: int | None = None) -> Session:
        return await self.database.summaries.adopt_summary(await self.adoption(through, text, expected=expected))

    async def prepare(self, through: Message, text: str = "prepared", *, expected: int | None = None) -> SummaryVersion:
        return await self.database.summaries.prepare_summary(await self.adoption(through, text, expected=expected))

    async def pin(self, *messages: Message) -> tuple[Message, ...]:
        ids = tuple(message.id for message in messages)
        return await self.database.pins.pin(self.owner_id, self.session.id, ids, lambda _elsewhere: None)

    async def tries_to_adopt(self, through: Message, text: str, *, expected: int) -> bool:
        try:
            await self.adopt(through, text, expected=expected)
        except SummaryConflict:
            return False
        return True


async def claim_next(runs: RunRepository, claimer: Claimer = CLAIMER) -> ClaimedRun | None:
    """Return what a claim of one run takes, None if there is no run to take."""
    claimed = await runs.claim(replace(claimer, most=1))
    return claimed.runs[0] if claimed.runs else None


async def pulse_of(database: Database, lease: Lease) -> LeaseRenewal:
    """Renew once a lease that must still be ours."""
    return (await database.runs.renew([lease], 10))[lease]


async def is_held(database: Database, lease: Lease) -> bool:
    """Whether a heartbeat finds the lease still ours."""
    return lease in await database.runs.renew([lease], 10)


def segment_of(through: Message, text: str, *, first: int = 1, level: int = 0) -> NewSegment:
    return NewSegment(
        from_position=first,
        through_position=through.position,
        through_id=through.id,
        text=text,
        token_count=5,
        model="offline",
        prompt_version="2",
        read_hash=f"hash-{first}-{through.position}-{level}-{text}",
        duration_seconds=0.1,
        input_tokens=100,
        output_tokens=5,
        level=level,
    )


def adoption_of(version: int, through: Message, *segments: Segment, kept_facts: tuple[KeptFact, ...] = ()) -> Adoption:
    """What stands for messages 1..`through`, made of these segments; the text is the last one's."""
    return Adoption(
        session_id=through.session_id,
        expected_version=version,
        segment_ids=tuple(segment.id for segment in segments),
        text=segments[-1].text if segments else "nothing",
        token_count=5,
        kept_facts=kept_facts,
        through_id=through.id,
        through_position=through.position,
        model="offline",
    )


async def open_conversation(database: Database, owner: str = "anna", *, title: str = "") -> Conversation:
    owner_id = await database.users.get_or_create(owner)
    new = NewSession(owner_id=owner_id, agent="assistant", title=title, source=Source.API, metadata={})
    session, _ = await database.sessions.create(new)
    return Conversation(database, owner_id, session)


async def everything(url: str) -> list[tuple[object, ...]]:
    """A hash over each table that a summary has to do with: equal before and after means that nothing was written."""
    tables = ("messages", "sessions", "summaries", "summary_versions", "message_pins")
    hashes = (f"(select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from {name} t)" for name in tables)
    return await run_sql(url, f"select {', '.join(hashes)}")
