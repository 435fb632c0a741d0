"""Comparison of the chat that a request brings with the session that it continues, by the texts of the user.

Answers are not compared: chat programs change them, and a person may stop one before its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_COMPARED = 20
"""Newest texts of a session that are compared."""


class Alignment(StrEnum):
    """How a request's newest message follows the session.

    - EMPTY: the session has no message of the user yet.
    - CONTINUES: the message is new.
    - REPEATS: it is the session's newest message once more.
    - MAY_REPEAT: it has the text of the session's newest message, and came without any message before it.
    - BRANCHES: the texts are not those of the session.
    """

    EMPTY = "empty"
    CONTINUES = "continues"
    REPEATS = "repeats"
    MAY_REPEAT = "may_repeat"
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True)
class SessionTexts:
    """The user's newest texts of a session, oldest first. None stands for a redacted text, which fits any.

    `is_all` says that the session has no earlier one.
    """

    texts: tuple[str | None, ...]
    is_all: bool


def align(request_texts: Sequence[str], session_texts: SessionTexts, *, has_whole_chat: bool) -> Alignment:
    """Return how the last of `request_texts` follows the session.

    Both are texts of the user, oldest first. The request's earlier texts have to be the session's newest, as far back
    as both reach. A request with a single text continues any session, unless its client sends whole chats. If the
    newest text can be new or repeated, it is repeated only if the request and the session have equally many texts.
    """
    if not session_texts.texts:
        return Alignment.EMPTY
    repeats = _ends_alike(request_texts, session_texts.texts)
    if len(request_texts) == 1 and not has_whole_chat:
        return Alignment.MAY_REPEAT if repeats else Alignment.CONTINUES
    continues = len(request_texts) > 1 and _ends_alike(request_texts[:-1], session_texts.texts)
    if repeats and (not continues or (session_texts.is_all and len(request_texts) == len(session_texts.texts))):
        return Alignment.REPEATS
    return Alignment.CONTINUES if continues else Alignment.BRANCHES


def _ends_alike(request_texts: Sequence[str], session_texts: Sequence[str | None]) -> bool:
    pairs = zip(reversed(request_texts), reversed(session_texts), strict=False)
    return all(stored is None or one == stored for one, stored in pairs)
