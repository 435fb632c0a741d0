"""Token counters an operator might name as `module:function`, good and bad."""

NOT_CALLABLE = 3


def count_words(text: str) -> int:
    """Counts words."""
    return len(text.split())


def returns_text(text: str) -> str:
    """Returns no count."""
    return text


def raises(text: str) -> int:
    """Fails on every text."""
    return len(text) // 0
