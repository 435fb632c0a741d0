"""The retrieval benchmark reads each form of its data sets, and stores what it reads as turns would."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from benchmarks.figures import connected
from benchmarks.retrieval import SAMPLES, plain_bm25
from benchmarks.retrieval_data import Archive, Halves, Meeting
from benchmarks.retrieval_readers import Kind, read_kinds
from throughline.context.measure import count_message
from throughline.db.database import Database
from throughline.domain.message import Role, text_of
from throughline.domain.recall import HistoryQuery
from throughline.llm.counters import make_counter

TURNS = [
    [
        {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "The gate code is 4417. ->-> 1,1,2"},
        {"role": "assistant", "id": 1, "content": "Noted: an arrow like ->-> 4 stays inside."},
    ],
    [{"role": "user", "id": 2, "content": "The boat is green."}, {"role": "assistant", "id": 3, "content": "Fine."}],
]
ASKED = {
    "abstention": [{"question": "Who built it?"}],
    "knowledge_update": [{"question": "Which code?", "source_chat_ids": {"first": [0], "later": [[2, 3], 77]}}],
    "information_extraction": [{"question": "Which colour?", "source_chat_ids": [2]}],
}


def write_chat(folder: Path, name: str) -> None:
    named = {"role": "user", "id": 99, "content": f"This is chat {name}."}
    (folder / f"{name}-chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [*TURNS, [named]]}]))
    (folder / f"{name}-questions.json").write_text(json.dumps(ASKED))


def write_dialogue(folder: Path, name: str, *, is_nested: bool) -> None:
    said = [{"speaker": "Ana", "dia_id": "D1:1", "text": f"I am in {name}."}]
    talk = {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    qa = {"qa": [{"question": "Where is Ana?", "evidence": ["D1:1; D9:9"]}, {"question": "Why?", "evidence": []}]}
    (folder / f"{name}.json").write_text(json.dumps({**qa, "conversation": talk} if is_nested else {**qa, **talk}))


def first_texts(meetings: Sequence[Meeting]) -> list[str]:
    return [meeting.lines[0].text for meeting in meetings]


def test_a_chat_is_read_without_indexes_and_unanswerable_questions(tmp_path: Path) -> None:
    write_chat(tmp_path, "1")

    (chat,) = read_kinds([tmp_path])[Kind.ASSISTANT].of("all")

    texts = [line.text for line in chat.lines]
    assert texts[:2] == ["The gate code is 4417.", "Noted: an arrow like ->-> 4 stays inside."]
    assert [line.role for line in chat.lines] == ["user", "assistant", "user", "assistant", "user"]
    assert {line.at.date().isoformat() for line in chat.lines if line.at} == {"2024-03-15"}
    assert [question.ability for question in chat.questions] == ["knowledge_update", "information_extraction"]
    assert [question.spans for question in chat.questions] == [((0, 0), (2, 2), (3, 3)), ((2, 2),)]


def test_each_half_has_every_other_chat_of_each_group_of_names(tmp_path: Path) -> None:
    for name in ("1", "1m-10", "1m-3", "2", "3"):
        write_chat(tmp_path, name)

    halves = read_kinds([tmp_path])[Kind.ASSISTANT]

    assert [chat.lines[-1].text for chat in halves.tuned] == [f"This is chat {name}." for name in ("1", "3", "1m-10")]
    assert [chat.lines[-1].text for chat in halves.reported] == ["This is chat 2.", "This is chat 1m-3."]
    assert halves.of("all") == (*halves.tuned, *halves.reported)


def test_dialogues_of_several_folders_and_both_forms_are_one_kind(tmp_path: Path) -> None:
    for folder, is_nested in (("one", True), ("two", False)):
        (tmp_path / folder).mkdir()
        for name in ("Bonn", "Graz", "Ulm"):
            write_dialogue(tmp_path / folder, f"{name} {folder}", is_nested=is_nested)
    (tmp_path / "one" / "notes.json").write_text("[1]")

    halves = read_kinds([tmp_path / "one", tmp_path / "two"])[Kind.PEOPLE]

    assert first_texts(halves.tuned) == [f"I am in {name}." for name in ("Bonn one", "Ulm one", "Bonn two", "Ulm two")]
    assert first_texts(halves.reported) == ["I am in Graz one.", "I am in Graz two."]
    assert [question.spans for question in halves.tuned[0].questions] == [((0, 0),)]


def test_a_folder_without_conversations_has_no_kind(tmp_path: Path) -> None:
    assert read_kinds([tmp_path]) == {}
    assert Halves().of("all") == ()


def test_recorded_runs_are_asked_for_messages_and_calls_that_they_hold() -> None:
    kinds = read_kinds(SAMPLES)
    runs = kinds[Kind.AGENTS].of("all")

    assert set(kinds) == {Kind.MEETINGS, Kind.ASSISTANT, Kind.AGENTS}
    assert runs == read_kinds(SAMPLES)[Kind.AGENTS].of("all")  # the same questions each time
    for run in runs:
        for question in run.questions:
            sources = [run.lines[first] for first, _ in question.spans]
            if question.ability == "known item":
                (source,) = sources
                assert any(word in source.searched.lower() for word in question.text.split())
            else:
                made, answered = sources
                assert answered.call_id in {call.id for call in made.calls}
                assert question.text.startswith(f"What did {answered.tool} return for ")


async def test_calls_and_results_are_stored_and_found_as_those_of_turns(archive: Archive) -> None:
    run = read_kinds(SAMPLES)[Kind.AGENTS].of("all")[0]
    counter = make_counter("chars")
    session_id = await archive.fill_session(run.lines, counter)
    await archive.index(session_id)

    stored = await archive.database.messages.get_messages_after(session_id, None)
    question = next(asked for asked in run.questions if asked.ability == "tool call")
    found = await archive.database.history.search(archive.owner_id, session_id, HistoryQuery(question.text, 50))

    assert [(message.role.value, text_of(message.content)) for message in stored] == [
        (line.role, line.text) for line in run.lines
    ]
    answered = [message for message in stored if message.role is Role.TOOL]
    assert [(message.name, message.tool_call_id) for message in answered] == [
        (line.tool, line.call_id) for line in run.lines if line.tool
    ]
    assert [message.tool_calls for message in stored] == [line.calls for line in run.lines]
    assert [message.token_count for message in stored] == [count_message(message, counter.count) for message in stored]
    assert {first + 1 for first, _ in question.spans} & {hit.message.position for hit in found.hits}


def test_messages_of_users_count_more_with_a_factor() -> None:
    (chat,) = read_kinds(SAMPLES)[Kind.ASSISTANT].of("all")

    assert sum(plain_bm25([chat], factor=2.0).lines) > sum(plain_bm25([chat]).lines)


@pytest.fixture
async def archive(database: Database, database_url: str) -> AsyncIterator[Archive]:
    async with connected(database_url) as connection:
        yield Archive(database, connection, await database.users.get_or_create("retrieval"))
