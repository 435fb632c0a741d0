"""Token counters an operator might name as `module:function`, good and bad."""

import threading

NOT_CALLABLE = 3


def count_words(text: str) -> int:
    """Counts words."""
    return len(text.split())


def returns_text(text: str) -> str:
    """Returns no count."""
    return text


def returns_less_than_nothing(text: str) -> int:
    """Returns a negative count."""
    return -len(text)


def returns_a_share(text: str) -> float:
    """Returns no whole number."""
    return len(text) / 4


def raises(text: str) -> int:
    """Fails on every text."""
    return len(text) // 0


def raises_when_empty(text: str) -> int:
    """Fails where there is nothing to count."""
    return max(1, len(text) // len(text))


def never_returns(text: str) -> int:
    """Hangs."""
    threading.Event().wait()
    return len(text)


def leaves(text: str) -> int:
    """Ends the process."""
    raise SystemExit(len(text))


def breaks_later(text: str) -> int:
    """Passes every trial and fails on some words."""
    match text:
        case "break":
            return len(text) // 0
        case "leave":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case _:
            return len(text.split())
