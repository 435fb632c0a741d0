"""`throughline sessions import` of threads that LangGraph's savers wrote, as recorded in `exports/`."""

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.command_stage import CommandStage
from fakes.raw_sql import connected, run_sql
from throughline.db.langgraph_checkpoints import open_threads
from throughline.domain.errors import DatabaseUnusable

EXPORTS = Path(__file__).parent / "exports"
TO = ("--agent", "assistant")
SAVERS = ("full", "shallow", "old")
SESSIONS = "select external_id from sessions order by external_id"


async def fill(url: str, saver: str) -> None:
    async with connected(url) as connection:
        await connection.execute((EXPORTS / f"langgraph-{saver}.sql").read_text(encoding="utf-8"))


async def exported(service: CommandStage, external_id: str) -> list[dict[str, Any]]:
    ((session_id,),) = await service.sql("select id::text from sessions where external_id = $1", external_id)
    result = await service.run("sessions", "export", session_id)
    return [json.loads(line) for line in result.stdout.splitlines()]


def spoken(lines: list[dict[str, Any]]) -> list[tuple[str, object]]:
    return [(line["role"], line["content"]) for line in lines if line["type"] == "message"]


@pytest.mark.parametrize("saver", SAVERS)
async def test_threads_of_each_saver_become_sessions(
    service: CommandStage, empty_database_url: str, saver: str
) -> None:
    await fill(empty_database_url, saver)

    result = await service.run("sessions", "import", empty_database_url, *TO)

    assert result.exit_code == 0, result.output
    session, *messages = await exported(service, "thread-1")
    assert spoken(messages) == [
        ("user", "hello"),
        ("assistant", "You said: hello"),
        ("user", "where is my order?"),
        ("assistant", ""),
        ("tool", "shipped"),
        ("assistant", "Order 7 is shipped."),
    ]
    asked, _, _, called, answered, last = messages
    assert (asked["author"], asked["metadata"]) == ("Anna", {"message_id": "h1"})
    assert (called["tool_calls"][0]["id"], called["metadata"]["model"]) == ("call_1", "gpt-5")
    assert json.loads(called["tool_calls"][0]["arguments"]) == {"number": 7, "note": "grüße"}
    assert (answered["tool_call_id"], answered["name"]) == ("call_1", "find_order")
    assert last["reasoning"] == "It is on its way."
    origin = session["metadata"]["imported_from"]
    assert (origin["program"], origin["thread_id"]) == ("langgraph", "thread-1")
    assert origin["updated_at"] == last["created_at"]


@pytest.mark.parametrize("saver", SAVERS)
async def test_images_stay_and_removed_messages_are_gone(
    service: CommandStage, empty_database_url: str, saver: str
) -> None:
    await fill(empty_database_url, saver)

    await service.run("sessions", "import", empty_database_url, *TO)

    first, second, _ = [message for message in await exported(service, "thread-2") if message["type"] == "message"]
    assert first["content"] == "You said: hi", "g1 was removed"
    assert second["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
    ]


async def test_what_is_left_out_of_threads_is_told(service: CommandStage, empty_database_url: str) -> None:
    await fill(empty_database_url, "full")

    result = await service.run("sessions", "import", empty_database_url, *TO)

    assert result.stdout.splitlines() == [
        "8 sessions with 30 messages imported",
        "left out:",
        "  1 content of the kind `file` (thread thread-2: g2)",
        "  1 items that are no messages of LangChain (__main__.Own) (thread thread-3: item 2)",
        "  1 messages of the kind `system` (thread thread-1: s1)",
        "  1 states of subgraphs (thread thread-4)",
        "  3 values of the channel `notes` (thread thread-1; thread thread-2; thread thread-3)",
        "  1 values of the channel `order` (thread thread-1)",
        "  1 writes that no step had taken up yet (thread thread-5)",
    ]


async def test_node_names_of_older_versions_are_nothing_left_out(
    service: CommandStage, empty_database_url: str
) -> None:
    await fill(empty_database_url, "old")

    result = await service.run("sessions", "import", empty_database_url, *TO)

    assert [line for line in result.stdout.splitlines() if "channel" in line] == [
        "  3 values of the channel `notes` (thread thread-1; thread thread-2; thread thread-3)",
        "  1 values of the channel `order` (thread thread-1)",
    ]


@pytest.mark.parametrize(
    ("thread", "said"),
    [
        ("delta-1", ["question 1", "question 3"]),
        ("delta-2", ["only one"]),
        ("delta-3", [f"question {number}" for number in range(1, 6)]),
    ],
)
async def test_a_delta_channel_is_put_together_from_its_last_value_and_the_writes_since(
    service: CommandStage, empty_database_url: str, thread: str, said: list[str]
) -> None:
    await fill(empty_database_url, "full")

    await service.run("sessions", "import", empty_database_url, *TO)

    found = spoken(await exported(service, thread))
    assert [text for role, text in found if role == "user"] == said
    assert len(found) == 2 * len(said) + (thread == "delta-1"), "its answer stayed where the question was removed"


async def test_a_broken_off_import_goes_on(service: CommandStage, empty_database_url: str) -> None:
    await fill(empty_database_url, "full")
    broken = "update checkpoint_blobs set blob = '\\x00', type = 'pickle' where thread_id = 'thread-2'"
    held = "create table held as select * from checkpoint_blobs; "
    async with connected(empty_database_url) as connection:
        await connection.execute(held + broken)

    first = await service.run("sessions", "import", empty_database_url, *TO)
    async with connected(empty_database_url) as connection:
        await connection.execute("truncate checkpoint_blobs; insert into checkpoint_blobs select * from held")
    second = await service.run("sessions", "import", empty_database_url, *TO)

    assert (first.exit_code, second.exit_code) == (1, 0)
    assert "not imported: thread thread-2: The channel `messages` cannot be read: `pickle` is not read" in " ".join(
        first.stderr.split()
    )
    assert second.stdout.startswith("1 sessions with 3 messages imported\n7 skipped: a session with their id exists\n")


async def test_the_database_is_only_read_and_a_dry_run_stores_nothing(
    service: CommandStage, empty_database_url: str
) -> None:
    await fill(empty_database_url, "full")
    counts = "select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_user_tables"
    before = await run_sql(empty_database_url, counts)

    result = await service.run("sessions", "import", empty_database_url, *TO, "--dry-run")

    assert result.stdout.startswith("8 sessions with 30 messages would be imported\n")
    assert (await service.sql(SESSIONS), await run_sql(empty_database_url, counts)) == ([], before)


async def test_another_channel_can_be_named_and_one_without_messages_is_refused(
    service: CommandStage, empty_database_url: str
) -> None:
    await fill(empty_database_url, "full")

    absent = await service.run("sessions", "import", empty_database_url, *TO, "--channel", "chat")
    other = await service.run("sessions", "import", empty_database_url, *TO, "--channel", "order")

    assert absent.stdout.startswith("0 sessions with 0 messages imported\n")
    assert "8 conversations without messages" in absent.stdout
    assert "The channel `order` cannot be read: it is no list of messages." in " ".join(other.stderr.split())


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("postgresql://u:secret@host/name?ssl=x", "The URL has sslmode=x."),
        ("postgresql://u:secret@127.0.0.1:1/none", "127.0.0.1:1"),
    ],
)
async def test_a_database_that_cannot_be_reached_is_told_without_its_password(
    service: CommandStage, url: str, wrong: str
) -> None:
    result = await service.run("sessions", "import", url, *TO)

    assert result.exit_code == 1
    assert wrong in " ".join(result.stderr.split())
    assert "secret" not in result.output


async def test_a_database_without_langgraphs_tables_is_refused(empty_database_url: str) -> None:
    with pytest.raises(DatabaseUnusable, match="has no tables `checkpoints`"):
        async with open_threads(empty_database_url, "messages"):
            pass
