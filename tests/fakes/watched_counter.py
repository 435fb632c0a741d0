"""A counter that notes which texts it was given on the event loop's own thread."""

import threading
from dataclasses import dataclass, field

from throughline.llm.counters import CharsCounter


@dataclass
class WatchedCounter:
    """Counts like `chars`; `on_loop` holds the lengths counted on the thread it was made on, `beside` the others."""

    name: str = "watched"
    on_loop: list[int] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)
    _home: int = field(default_factory=threading.get_ident)

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        (self.on_loop if threading.get_ident() == self._home else self.beside).append(len(text))
        return CharsCounter().count(text)
