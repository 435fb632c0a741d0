"""What a random session is made of: its model, its agent's policy, its rows, and where each stands before a call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from context.strategies import PIECES, Said, by_bytes, by_length
from throughline.context.budget import Budget, make_budget
from throughline.context.policy import Adopt, ContextPolicy, PrunePolicy, Strategy, SummaryPolicy
from throughline.context.view.groups import Group, group_messages
from throughline.context.view.view_state import ViewState
from throughline.domain.message import Content, ImageBlock, Message, Role, TextBlock, ToolCall

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


BLANK = ("", " ", "\n\t", "\u200b")
SHORT = ("ok", "thanks", "yes", "go on", "see src/app/main_7.py", "port 8443?")
LARGEST_TOKENS = 300_000
"""Ten windows of a million tokens would be 40 MB a message: so much shows the same."""

ARGUMENTS = ("{}", "", '{"q": "a"}', "not json", '{"a": ' * 20)
ODD_IDS = ("call_1", "call_2", "", "call_1_2", "x" * 40)
TOOLS = ("search", "read.file", "t" * 70)


@dataclass(slots=True)
class Author:
    """Says things sized for `window`. `damage` is the share of tool steps that are not as the service writes them."""

    random: Random
    window: int
    damage: float
    large: float
    said: int = 0

    def text(self) -> str:
        """Mostly short, now and then a good part of the window, rarely ten windows."""
        kind = self.random.random()
        if kind < 0.04:
            return self.random.choice(BLANK)
        if kind < 0.16:
            return self.random.choice(SHORT)
        if kind < 1 - self.large:
            return self._of(self.random.randint(4, 120))
        if kind > 1 - self.large / 30:
            return self._of(min(10 * self.window, LARGEST_TOKENS))
        return self._of(min(int(self.window * self.random.choice((0.02, 0.05, 0.1, 0.3))), LARGEST_TOKENS))

    def content(self) -> Content:
        """A text, or blocks with images and blank texts in them."""
        if self.random.random() > 0.04:
            return self.text()
        return tuple(
            ImageBlock("data:image/png;base64," + "A" * 5000, self.random.choice(("auto", "low")))
            if self.random.random() < 0.4
            else TextBlock(self.text())
            for _ in range(self.random.randint(0, 3))
        )

    def user(self) -> Said:
        return Said(Role.USER, self.content())

    def answer(self) -> Said:
        return Said(Role.ASSISTANT, self.text())

    def calls(self) -> tuple[ToolCall, ...]:
        """One call or a few, now and then fifty at once."""
        many = self.random.random()
        number = 50 if many < self.large / 5 else self.random.choice((1, 1, 1, 2, 3))
        return tuple(self._call() for _ in range(number))

    def step(self) -> list[Said]:
        """A call with its results; damaged ones miss a result, have one twice, late, out of order, or of nobody."""
        asked = self.calls()
        said = [Said(Role.ASSISTANT, self.random.choice(("", "", "Let me look.")), asked)]
        results = [Said(Role.TOOL, self.content(), tool_call_id=call.id) for call in asked[:3]]
        part = self.text() if self.random.random() < 0.5 else "part"
        results += [Said(Role.TOOL, f"{call.id} {part}", tool_call_id=call.id) for call in asked[3:]]
        if self.random.random() < self.damage:
            self._spoil(results)
        return said + results

    def turn(self) -> list[Said]:
        """A whole turn as the service writes it, or any mix of roles."""
        if self.random.random() < self.damage:
            return [Said(self.random.choice(tuple(Role)), self.content()) for _ in range(self.random.randint(1, 3))]
        steps = [self.step() for _ in range(self.random.choice((0, 0, 0, 1, 2, 4)))]
        return [self.user(), *(said for step in steps for said in step), self.answer()]

    def _spoil(self, results: list[Said]) -> None:
        match self.random.randrange(6):
            case 0:
                results.pop()
            case 1:
                results.append(results[0])
            case 2:
                results.reverse()
            case 3:
                results.append(Said(Role.TOOL, "whose?", tool_call_id="nobody"))
            case 4:
                results.insert(0, Said(Role.USER, "an interruption before the results"))
            case _:
                late = results.pop()
                results.extend([Said(Role.USER, "meanwhile"), Said(Role.ASSISTANT, "yes?"), late])

    def _call(self) -> ToolCall:
        self.said += 1
        is_odd = self.random.random() < self.damage / 2
        call_id = self.random.choice(ODD_IDS) if is_odd else f"c{self.said}"
        arguments = self.random.choice(ARGUMENTS) if self.random.random() < 0.9 else self._arguments()
        return ToolCall(call_id, self.random.choice(TOOLS), arguments)

    def _arguments(self) -> str:
        tokens = min(max(int(self.window * self.random.choice((0.02, 0.1))), 40), LARGEST_TOKENS)
        return '{"code": "' + self.random.choice(PIECES[:5]) * (tokens // 8) + '"}'

    def _of(self, tokens: int) -> str:
        self.said += 1
        piece = self.random.choice(PIECES)
        return f"{self.said}: " + piece * max(tokens * 4 // len(piece), 1)
