"""What a user types in a chat."""

from dataclasses import dataclass, field


@dataclass
class TypedLines:
    """Lines as if typed at a terminal; an exception in the list is raised at the prompt."""

    lines: list[str | BaseException] = field(default_factory=list)
    is_terminal: bool = True

    async def read(self, question: str = "", text: str = "") -> str | None:
        """Return the next line, whatever is asked."""
        del question, text
        line = self.lines.pop(0) if self.lines else None
        if isinstance(line, BaseException):
            raise line
        return line
