"""Draws what is said in a random conversation: any script, any size, whole and damaged tool steps."""

from dataclasses import dataclass
from random import Random

from context.strategies import PIECES, Said
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, ToolCall

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
