from uuid import UUID

from throughline.domain.ids import SessionId
from throughline.domain.recall import Found
from throughline.wire.messages import MOST_INCOMPLETE, SearchOut, search_json


def test_an_incomplete_search_names_some_sessions_and_counts_all() -> None:
    sessions = tuple(SessionId(UUID(int=number)) for number in range(MOST_INCOMPLETE + 5))

    told = SearchOut.model_validate(search_json(Found((), sessions)))

    assert not told.is_complete
    assert told.incomplete_sessions == [str(session_id) for session_id in sessions[:MOST_INCOMPLETE]]
    assert told.incomplete_session_count == MOST_INCOMPLETE + 5
