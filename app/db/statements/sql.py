"""Puts statements together from pieces of our own, such as column lists; values always travel as parameters."""

from sqlalchemy import TextClause, text


def sql(template: str, **pieces: str) -> TextClause:
    """Return the statement in which each `{name}` is replaced by the piece of that name; `{{}}` is a plain `{}`."""
    return text(template.format_map(pieces))
