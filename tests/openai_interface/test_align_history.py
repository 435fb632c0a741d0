"""The comparison of a brought chat with its session, for any chat."""

from hypothesis import given
from hypothesis import strategies as st

from throughline.openai.begin_chat import MOST_COMPARED, Alignment, SessionTexts, align

TEXTS = st.sampled_from(["yes", "no", "go on", ""])
CHATS = st.lists(TEXTS, min_size=1, max_size=2 * MOST_COMPARED)


def kept(texts: list[str]) -> SessionTexts:
    """Return what is read of a session in which the user said `texts`."""
    return SessionTexts(tuple(texts[-MOST_COMPARED:]), len(texts) < MOST_COMPARED)


@given(CHATS, TEXTS)
def test_a_further_message_continues_the_chat(chat: list[str], text: str) -> None:
    assert align([*chat, text], kept(chat), has_whole_chat=True) is Alignment.CONTINUES


@given(st.lists(TEXTS, min_size=1, max_size=MOST_COMPARED - 1))
def test_the_same_chat_once_more_repeats_its_newest_message(chat: list[str]) -> None:
    assert align(chat, kept(chat), has_whole_chat=True) is Alignment.REPEATS


@given(CHATS, st.data())
def test_a_changed_earlier_message_branches_the_chat(chat: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(max(len(chat) - MOST_COMPARED, 0), len(chat) - 1))
    changed = [*chat[:place], "something else", *chat[place + 1 :], "next"]

    assert align(changed, kept(chat), has_whole_chat=True) is Alignment.BRANCHES


@given(CHATS, TEXTS, st.integers(1, 2 * MOST_COMPARED))
def test_a_program_may_leave_out_the_oldest_messages(chat: list[str], text: str, left: int) -> None:
    sent = [*chat[-left:], text]

    assert align(sent, kept(chat), has_whole_chat=True) in {Alignment.CONTINUES, Alignment.REPEATS}


@given(CHATS, TEXTS)
def test_a_message_alone_never_branches_unless_it_is_the_whole_chat(chat: list[str], text: str) -> None:
    found = align([text], kept(chat), has_whole_chat=False)

    assert found is (Alignment.MAY_REPEAT if text == chat[-1] else Alignment.CONTINUES)


@given(CHATS, TEXTS, st.data())
def test_a_redacted_message_fits_any(chat: list[str], text: str, data: st.DataObject) -> None:
    said = kept(chat)
    place = data.draw(st.integers(0, len(said.texts) - 1))
    redacted = SessionTexts((*said.texts[:place], None, *said.texts[place + 1 :]), said.is_all)

    assert align([*chat, text], redacted, has_whole_chat=True) is Alignment.CONTINUES


@given(CHATS)
def test_a_session_without_messages_takes_the_whole_chat(chat: list[str]) -> None:
    assert align(chat, SessionTexts((), is_all=True), has_whole_chat=False) is Alignment.EMPTY
