"""What a random session is made of: its model, its agent's policy, its rows, and where each stands before a call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from context.strategies import by_bytes, by_length
from throughline.context.budget import Budget, make_budget
from throughline.context.policy import Adopt, ContextPolicy, PrunePolicy, Strategy, SummaryPolicy
from throughline.context.view.groups import Group, group_messages
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Message, Role

WINDOWS = (200, 256, 1000, 1000, 2048, 2048, 4096, 4096, 8192, 8192, 16_384, 32_768, 128_000, 1_000_000)
FACTORS = (0.7, 1.0, 1.0, 1.03, 1.15, 2.3)
PINNED_SHARE = 0.20
"""Pins above this share of the window are refused when they are set."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model of the moment: its calibration key, its marks, and what our counts are multiplied by."""

    key: str
    budget: Budget
    factor: float


@dataclass(slots=True)
class Conversation:
    """What a turn holds of a session while it runs; loaded once, then only added to."""

    history: tuple[Message, ...]
    own: tuple[Message, ...]
    pinned: tuple[Message, ...]

    def behind(self, cursor: int) -> None:
        """Let the history begin after the cursor; pinned groups are kept."""
        left = [row for row in self.history if row.position <= cursor]
        pins = [
            row
            for group in group_messages(left)
            if any(member.pinned for member in group.messages)
            for row in group.messages
        ]
        self.history = tuple(row for row in self.history if row.position > cursor)
        self.pinned = tuple(sorted((*self.pinned, *pins), key=lambda row: row.position))


@dataclass(slots=True)
class Stored:
    """The rows of a session, with its pins, as the database has them."""

    rows: list[Message] = field(default_factory=list)

    def load(self, cursor: int, own_from: int, max_tokens: int) -> Conversation:
        """Return the newest rows after the cursor up to `max_tokens`, the run's own, and all pins beside those."""
        first, tokens = own_from, 0
        while first > cursor and tokens < max_tokens:
            first -= 1
            tokens += self.rows[first].token_count
        history = tuple(self.rows[first:own_from])
        return Conversation(history, tuple(self.rows[own_from:]), tuple(row for row in self.rows[:first] if row.pinned))

    def pin(self, random: Random, room_tokens: int, *, single: bool = False) -> bool:
        """Pin a group that the room for pins allows; with `single` the largest message without calls."""
        used = sum(row.token_count for row in self.rows if row.pinned)
        groups = [
            group for group in group_messages(self.rows) if group.is_complete and group.head.role is not Role.TOOL
        ]
        if single:
            groups = [group for group in groups if len(group.messages) == 1 and not group.head.tool_calls]
        small = [group for group in groups if _size(group) <= room_tokens - used]
        if not small:
            return False
        chosen = max(small, key=_size) if single else random.choice(small)
        for row in chosen.messages:
            self.rows[row.position - 1] = replace(row, pinned=True)
        return True

    def unpin(self, random: Random) -> bool:
        """Take the pin off one group."""
        groups = [group for group in group_messages(self.rows) if any(row.pinned for row in group.messages)]
        if not groups:
            return False
        for row in random.choice(groups).messages:
            self.rows[row.position - 1] = replace(row, pinned=False)
        return True


def _size(group: Group[Message]) -> int:
    return sum(row.token_count for row in group.messages)


def random_policy(random: Random, window: int) -> ContextPolicy:
    """Draw an agent's policy; most settings are the default ones, so that all of them meet often."""
    pick = random.choice
    strategy = random.choices(tuple(Strategy), (6, 2, 2))[0]
    return ContextPolicy(
        strategy=strategy,
        auto_summarize=random.random() > 0.08,
        usage_threshold=pick((0.8, 0.8, 0.8, 0.6, 0.9)),
        target=pick((0.5, 0.5, 0.3, 0.6)),
        max_messages_before_summary=pick((5, 5, 15, 30, 1000)),
        max_tokens_before_summary=pick((window // 4, 128_000)),
        adopt=pick((Adopt.AT_THRESHOLD, Adopt.AT_THRESHOLD, Adopt.AT_THRESHOLD, Adopt.IMMEDIATELY)),
        min_recent_messages=pick((6, 6, 2, 2, 0, 8)),
        response_reserve=pick((256, 4096, 100_000)),
        prune=PrunePolicy(
            keep_last=pick((5, 5, 3)), max_output_bytes=pick((2000, 50_000, 50_000)), critical=pick((0.95, 0.95, 0.8))
        ),
        summary=SummaryPolicy(max_tokens=pick((50, 400, 1500))),
        keep_recent=pick((20, 5, 10)),
        min_score_threshold=pick((0.3, 0.5)),
    )


def random_model(random: Random, policy: ContextPolicy, window: int, key: str) -> Model:
    return Model(key=key, budget=make_budget(policy, window), factor=random.choice(FACTORS))


def random_count(random: Random) -> Callable[[str], int]:
    return random.choice((by_length, by_length, by_bytes))


def arbitrary_state(random: Random, key: str, last: int) -> ViewState:
    """Draw a state no stage has left: whatever stands in the table must not hurt a prompt. `last` is a position."""
    first = random.randint(1, max(last, 1))
    pair = (first, min(first + random.randint(0, 5), max(last, 1)))
    return ViewState(
        model=key,
        factor=random.choice((None, 1.0, 0.1)),
        pruned_through_position=random.randint(0, last),
        truncations=random.choice(((), ((random.randint(0, last), random.choice((0, 1, 60, 500))),))),
        trimmed_through_position=random.choice((0, random.randint(0, last))),
        left_out=random.choice(((), (pair,))),
        folded=random.choice(((), (pair,))),
        summary_to_tokens=random.choice((None, 0, 20)),
        pins_to_tokens=random.choice((None, 50)),
        user_cuts=random.choice(((), ((-1, 10),), ((first, 10),))),
        without_notes=random.random() < 0.2,
        compacted_to_tokens=random.choice((None, 0, 1_000_000)),
    )


def is_torn(rows: Sequence[Message], through: int) -> bool:
    """Whether a call up to `through` has its result behind it; judged without the engine's groups.

    A result answers the newest call with its id, where that call still waits.
    """
    waiting: dict[str, list[int]] = {}
    for row in rows:
        for call_id in {call.id for call in row.tool_calls if row.role.value == "assistant"}:
            waiting[call_id] = [row.position for call in row.tool_calls if call.id == call_id]
        if row.role.value == "tool" and waiting.get(row.tool_call_id or ""):
            asked_at = waiting[row.tool_call_id or ""].pop()
            if asked_at <= through < row.position:
                return True
    return False
