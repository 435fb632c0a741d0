"""Assembly of statements from the service's own SQL fragments, such as column lists; values are always parameters."""

from throughline.db.connection.pool import Statement, statement


def sql(template: str, **pieces: str) -> Statement:
    """Return the statement with each `{name}` replaced by the fragment of that name; `{{}}` stands for `{}`.

    Without fragments the template is used unchanged.
    """
    return statement(template.format_map(pieces) if pieces else template)
