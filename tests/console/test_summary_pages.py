"""The pages of summaries: the versions, one with what it keeps, two compared, and what may be done with them."""

from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.conversations import Conversation, adoption_of, open_conversation
from throughline.console.front_end import CONSOLE
from throughline.console.page import GERMAN
from throughline.console.summaries import KINDS
from throughline.console.word_changes import MOST_CHARACTERS, MOST_WORDS, WordChanges, compare_words
from throughline.context.summaries.kept_facts_text import FACTS_HEADING, fact_line
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import Scope
from throughline.domain.message import Message, Role
from throughline.domain.summary import FactKind, KeptFact
from throughline.turn.summary.reread import SummaryCost

HOSTILE = "<script>alert(1)</script></ins></del>\u202eevil"
RULE = KeptFact(FactKind.INSTRUCTION, "Answer in short sentences.", 1)
OLD = KeptFact(FactKind.VALUE, "The gateway port is 8443.", 1, subject="gateway port", replaced_by=3)
NEW = KeptFact(FactKind.VALUE, "The gateway port is 9443.", 3, subject="gateway port")


async def summarised(database: Database, *texts: str) -> tuple[Conversation, list[Message], str]:
    """Return a session of anna with four messages and a version of its summary for each text."""
    conversation = await open_conversation(database, title="Moving")
    messages = await conversation.say(*(f"Message {number}" for number in range(1, 5)))
    for number, text in enumerate(texts):
        await conversation.adopt(messages[number], text)
    return conversation, messages, f"/console/sessions/{conversation.session.id}"


async def test_the_versions_are_listed_with_their_states_ranges_and_costs(
    database: Database, anna: httpx.AsyncClient
) -> None:
    conversation, messages, session = await summarised(database, "First text", "Second text")
    await conversation.prepare(messages[3], "Third text")

    page = (await anna.get(f"{session}/summaries")).text

    prepared, second, first = page.split('<li class="version ')[1:]
    assert prepared.startswith("prepared")
    assert "Prepared version" in prepared
    assert "?at=4" in prepared
    assert second.startswith("adopted")
    assert "in use" in second
    assert "Version 2" in second
    assert first.startswith("superseded")
    assert "?at=1" in first
    assert "offline" in first
    assert "Model calls for it: 1; tokens read: 100, written: 5" in first
    assert 'rect class="covered" width="500"' in second
    assert page.count("/restore") == 2  # of the first version, and of no summary


async def test_a_restored_version_says_what_it_is_and_cost_nothing(database: Database, anna: httpx.AsyncClient) -> None:
    _, _, session = await summarised(database, "First text", "Second text")
    await anna.post(f"{session.replace('console', 'v1')}/summaries/1/restore")

    page = (await anna.get(f"{session}/summaries")).text
    third = page.split('<li class="version ')[1]

    assert "Version 3" in third
    assert "Restored: the same as version 1." in third
    assert "Model calls for it" not in third


async def test_long_lists_go_on_with_older_versions(database: Database, anna: httpx.AsyncClient) -> None:
    _, _, session = await summarised(database, "First text", "Second text")
    for version in (1, 2) * 5:
        await anna.post(f"{session.replace('console', 'v1')}/summaries/{version}/restore")

    newest = (await anna.get(f"{session}/summaries")).text
    older = (await anna.get(f"{session}/summaries", params={"newest": 2})).text

    assert "Version 12" in newest
    assert "?newest=2" in newest
    assert newest.count('<li class="version') == 10
    assert older.count('<li class="version') == 2
    assert "Newest versions" in older


async def test_a_version_shows_its_text_with_links_its_facts_and_segments(
    database: Database, anna: httpx.AsyncClient
) -> None:
    conversation, messages, session = await summarised(database)
    segment = await conversation.segment(
        messages[2], "## State\nMoved [#2].\nValues:\n- Port 9443 [#3]\nLimits:\n- One"
    )
    await database.summaries.adopt_summary(adoption_of(0, messages[2], segment, kept_facts=(RULE, OLD, NEW)))

    page = (await anna.get(f"{session}/summaries/1")).text
    address = session.removeprefix("/console/")

    assert f'[<a href="{address}?at=2" class="citation">#2</a>]' in page
    assert "<h2>State</h2>" in page
    assert "<p>Limits:</p>" in page
    assert "Answer in short sentences." in page
    assert "<s>The gateway port is 8443.</s>" in page
    assert f'replaced in <a href="{address}?at=3">#3</a>' in page
    assert f'<th scope="row"><a href="{address}?at=1">#1</a>–<a href="{address}?at=3">#3</a>' in page


async def test_a_version_shows_all_it_keeps_by_kind_and_what_its_text_has_no_room_for(
    database: Database, anna: httpx.AsyncClient
) -> None:
    conversation, messages, session = await summarised(database)
    decision = KeptFact(FactKind.DECISION, "We use PostgreSQL 16.", 2)
    change = SessionChange(summary_instructions="Keep all ports.")
    await database.sessions.update(conversation.owner_id, conversation.session.id, change)
    adoption = adoption_of(0, messages[2], await conversation.segment(messages[2]), kept_facts=(RULE, NEW, decision))
    text = f"All is well.\n\n{FACTS_HEADING}\nDecisions:\n{fact_line(decision, 3)}"
    await database.summaries.adopt_summary(replace(adoption, text=text))

    page = (await anna.get(f"{session}/summaries/1")).text
    instructions, decisions, values = page.split("<h4>")[1:]

    assert "Keep all ports." in page
    assert instructions.startswith("Instructions")
    assert "not in the text" in instructions
    assert decisions.startswith("Decisions")
    assert "not in the text" not in decisions
    assert "The gateway port is 9443." in values


async def test_missing_numbers_of_versions_are_explained(database: Database, anna: httpx.AsyncClient) -> None:
    conversation, messages, session = await summarised(database, "First text", "Second text")
    whole = (await anna.get(f"{session}/summaries")).text
    await anna.post(f"{session.replace('console', 'v1')}/summaries/0/restore")
    unused = (await anna.get(f"{session}/summaries")).text
    await conversation.adopt(messages[3], "Fourth text")
    missing = (await anna.get(f"{session}/summaries")).text
    older = (await anna.get(f"{session}/summaries", params={"newest": 2})).text

    assert "numbers are missing" not in whole + older
    assert "numbers are missing" in unused
    assert "Version 4" in missing
    assert "numbers are missing" in missing


async def test_two_versions_are_compared_word_by_word(database: Database, anna: httpx.AsyncClient) -> None:
    conversation, messages, session = await summarised(database, "The port is 8443 now.", "The port is 9443 now.")
    prepared = await conversation.prepare(messages[3], "The port is 9443 now.")

    changed = (await anna.get(f"{session}/summaries", params={"left": "1", "right": "2"})).text
    same = (await anna.get(f"{session}/summaries", params={"left": "2", "right": str(prepared.id)})).text

    assert "<bdi>The port is</bdi> <del>8443</del> <bdi>now.</bdi>" in changed
    assert "<bdi>The port is</bdi> <ins>9443</ins> <bdi>now.</bdi>" in changed
    assert "only in the first version" in changed
    assert "only in the second version" in changed
    assert "Both versions have the same words." in same


async def test_hostile_texts_are_escaped(database: Database, anna: httpx.AsyncClient) -> None:
    conversation, messages, session = await summarised(database, f"One {HOSTILE}")
    facts = (
        replace(RULE, text=HOSTILE, author=HOSTILE),
        KeptFact(FactKind.VALUE, HOSTILE + "x" * 1_000_000, 1, author=HOSTILE),
    )
    adoption = adoption_of(1, messages[2], await conversation.segment(messages[2]), kept_facts=facts)
    text = f"Two {HOSTILE} {'y' * 1_000_000}"
    await database.summaries.adopt_summary(replace(adoption, text=text, model=HOSTILE))
    change = SessionChange(title=HOSTILE, summary_instructions=HOSTILE)
    changed = await database.sessions.update(conversation.owner_id, conversation.session.id, change)
    await database.summaries.save_failure(changed, f"{HOSTILE}{'z' * 1_000_000}")

    pages = [
        (await anna.get(f"{session}/summaries{rest}")).text for rest in ("", "/1", "/2", "?left=1&right=2", "/cost")
    ]

    for page in pages:
        assert "<script>alert" not in page
        assert "</del>\u202e" not in page
        assert "</ins></del>" not in page
    assert "failed" in pages[0]
    assert len(pages[0]) < 100_000
    assert "<bdi>&lt;script&gt;" in pages[0]
    assert "<bdi>&lt;script&gt;" in pages[2].replace(' class="plain"', "")
    assert "only their beginnings are compared" in pages[3]
    assert len(pages[3]) < 200_000


async def test_the_cost_of_a_summary_is_told_before_it_is_written(database: Database, anna: httpx.AsyncClient) -> None:
    _, _, session = await summarised(database)

    page = (await anna.get(f"{session}/summaries")).text
    cost = (await anna.get(f"{session}/summaries/cost", params={"instructions": " ", "from_position": "7"})).text

    assert "There is no summary yet." in page
    assert "/summarize" in page
    assert "/summaries/cost" in page
    assert "Messages to read: #7–#40. Calls of the summary model: about 2" in cost
    assert "seconds: about 3" in cost


async def test_why_no_summary_can_be_written_now_is_told_before_it_is_asked_for(
    keyed: ApiStage, database: Database
) -> None:
    conversation, messages, session = await summarised(database)

    async def cost_with(count: int) -> str:
        async def estimate(*_: object) -> SummaryCost:
            return SummaryCost(1, 0, count, 0, 0, 0, None)

        services = replace(keyed.services, estimate_summary=estimate)
        stage = replace(keyed, services=services).with_front_ends(KEYED, CONSOLE)
        async with stage.client(key=await keyed.key("anna")) as client:
            return (await client.get(f"{session}/summaries/cost")).text

    short, possible = await cost_with(0), await cost_with(4)
    await conversation.adopt(messages[2], "First text")
    nothing_new = await cost_with(0)
    await database.summaries.take_lease(conversation.session.id, 10)
    writing = await cost_with(4)

    assert "the chat is short" in short
    assert "#1 to #3 are summarized already" in nothing_new
    assert "is being written" in writing
    assert all('class="refused"' in told for told in (short, nothing_new, writing))
    assert "refused" not in possible


async def test_a_refused_estimate_is_told_in_words(database: Database) -> None:
    async def refuse(*_: object) -> None:
        raise InvalidInput("There is no message #99: the session has 4.", field="from_position")

    refusing = set_stage(database, KEYED, dependencies={"estimate_summary": refuse})
    stage = refusing.with_front_ends(KEYED, CONSOLE)
    _, _, session = await summarised(database)
    async with stage.client(key=await stage.key("anna")) as anna:
        told = await anna.get(f"{session}/summaries/cost", params={"from_position": "99"})

    assert told.status_code == httpx.codes.OK
    assert "There is no message #99" in told.text


async def test_nobody_sees_the_summaries_of_others(database: Database, bob: httpx.AsyncClient) -> None:
    _, _, session = await summarised(database, "First text", "Second text")

    for rest in ("", "/1", "/cost", "?left=1&right=2"):
        page = await bob.get(f"{session}/summaries{rest}")
        assert page.status_code == httpx.codes.NOT_FOUND
        assert "First text" not in page.text


@pytest.mark.parametrize("rest", ["/9", "/none", "/999999999", "?left=1&right=9", "?left=x&right=1"])
async def test_versions_that_do_not_exist_are_not_found(database: Database, anna: httpx.AsyncClient, rest: str) -> None:
    _, _, session = await summarised(database, "First text")

    assert (await anna.get(f"{session}/summaries{rest}")).status_code == httpx.codes.NOT_FOUND


async def test_who_may_only_read_is_offered_no_changes(keyed: ApiStage, database: Database) -> None:
    conversation, _, session = await summarised(database, "First text", "Second text")
    change = SessionChange(summary_instructions="Keep all ports.")
    await database.sessions.update(conversation.owner_id, conversation.session.id, change)
    async with keyed.client(key=await keyed.key("anna", Scope.READ)) as reader:
        page = (await reader.get(f"{session}/summaries")).text

    assert "Keep all ports." in page
    assert "/restore" not in page
    assert "/summarize" not in page


def test_kinds_and_speakers_of_facts_have_german_names() -> None:
    assert {*FactKind} == KINDS.keys()
    assert {*KINDS.values(), *Role} <= GERMAN.keys()


def left_of(changes: WordChanges) -> str:
    return "".join(piece.text + piece.space for piece in changes.left)


async def test_the_pieces_of_a_comparison_are_the_texts() -> None:
    left = "  One two\n\nthree   four."
    changes = await compare_words(left, "One three four five.")

    assert left_of(changes) == left.strip()
    assert [piece.text for piece in changes.left if piece.is_changed] == ["two", "four."]
    assert [piece.text for piece in changes.right if piece.is_changed] == ["four five."]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("", ""),
        ("a " * 20_000, "b " * 20_000),
        ("a " * 20_000, "a b " * 10_000),
        (" ".join(str(n % 101) for n in range(9_000)), " ".join(str(n * 7 % 101) for n in range(9_000))),
        ("x" * 1_000_000, "x" * 1_000_001),
    ],
)
async def test_a_comparison_of_any_texts_ends(left: str, right: str) -> None:
    changes = await compare_words(left, right)

    assert changes.is_cut is (max(len(left), len(right)) > 0)
    assert len(left_of(changes).split()) <= MOST_WORDS
    assert len(left_of(changes)) <= MOST_CHARACTERS
