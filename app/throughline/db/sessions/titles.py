"""Session titles: made from the first message, and made again if that message is withdrawn or edited."""

from throughline.db.connection.transactions import Statements
from throughline.db.sessions.quotations import MARKER
from throughline.db.statements.rows import content_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import SessionId
from throughline.domain.message import Content, text_of

TITLE_LENGTH = 60

_LOOK = sql("select s.title from sessions s where s.id = :session_id for no key update")
_FIRST = sql("""
    select r.input from runs r where r.session_id = :session_id and r.input ->> 'content' not in ('', :marker)
    order by r.seq limit 1
""")
_SET = sql("update sessions set title = :title where id = :session_id")


def title_of(content: Content) -> str:
    """Return the first line of the text that is not blank, cut at a word boundary to TITLE_LENGTH; '' without text."""
    line = next((line.strip() for line in text_of(content).splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    return f"{cut.rsplit(' ', 1)[0].rstrip() or cut}…"


async def retitle(tx: Statements, session_id: SessionId, taken: Content) -> None:
    """Make the title again from the first remaining message, if it was made from the removed text `taken`.

    The title is '' if no message is left; the next message then sets it. A title that a user wrote stays.
    """
    title = (await tx.fetch(_LOOK, session_id=session_id))[0]["title"]
    if not title or title != title_of(taken):
        return
    first = await tx.fetch(_FIRST, session_id=session_id, marker=MARKER)
    new_title = title_of(content_from(first[0]["input"]["content"])) if first else ""
    await tx.fetch(_SET, session_id=session_id, title=new_title)
