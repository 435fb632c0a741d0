"""Puts statements together from pieces of our own, such as column lists; values always travel as parameters."""

from throughline.db.connection.statement import Statement, statement


def sql(template: str, **pieces: str) -> Statement:
    """Return the statement in which each `{name}` is replaced by the piece of that name; `{{}}` is a plain `{}`.

    Without pieces the template is taken as it stands.
    """
    return statement(template.format_map(pieces) if pieces else template)
