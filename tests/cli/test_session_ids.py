"""Commands that take a session take the first characters of its id."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result

from fakes.command_stage import CommandStage
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import Source
from throughline.domain.session import NewSession

Throughline = Callable[..., Result]
FIRST = "0a1b2c3d-0000-7000-8000-000000000001"
SECOND = "0a1b2c3e-0000-7000-8000-000000000002"


async def named(service: CommandStage, session_id: str, title: str = "", *, owner_id: UserId | None = None) -> None:
    """Open a session with two messages under this id."""
    talk = await service.talk(0)
    if owner_id is not None:
        new = NewSession(owner_id=owner_id, agent="assistant", title=title, source=Source.CLI, metadata={})
        talk.session, _ = await service.api.database.sessions.create(new)
    await service.sql(
        "update sessions set id = $2, title = $3 where id = $1", talk.session.id, SessionId(UUID(session_id)), title
    )


@pytest.fixture
async def two(service: CommandStage) -> CommandStage:
    await named(service, FIRST, "Harbour")
    await named(service, SECOND, "Sea\x1b[2J")
    return service


@pytest.mark.parametrize(
    "arguments",
    [
        ("chat", "--session", "0a1b2c3d"),
        ("sessions", "show", "0A1B2C3D"),
        ("sessions", "context", "0a1b2c3d-0"),
        ("sessions", "export", "0a1b2c3d0000"),
        ("sessions", "summaries", "0a1b2c3d"),
        ("sessions", "show", "0a1-b2c3d"),
        ("sessions", "show", "-".join("0a1b2c3d0000700080")),
        ("sessions", "show", "-".join("0a1b2c3d00007000800000000000000")),
        ("sessions", "search", "text", "--session", "0a1b2c3d"),
    ],
)
async def test_first_characters_that_one_id_has_are_enough(two: CommandStage, arguments: tuple[str, ...]) -> None:
    result = await two.run(*arguments)

    assert result.exit_code == 0, result.output
    assert any(FIRST in request.url.path for request in two.way.asked)
    assert not any(SECOND in request.url.path for request in two.way.asked)


async def test_a_session_is_asked_about_by_its_whole_id_before_it_is_deleted(two: CommandStage) -> None:
    kept = await two.run("sessions", "delete", "0a1b2c3d", typed="n\n")
    redacted = await two.run("sessions", "redact", "0a1b2c3d", "1", typed="n\n")
    gone = await two.run("sessions", "delete", "0a1b2c3d", typed="y\n")

    assert (kept.exit_code, redacted.exit_code, gone.exit_code) == (1, 1, 0)
    assert f"Delete session {FIRST}" in kept.stderr
    assert f"of session {FIRST}" in redacted.stderr
    assert await two.sql("select id::text from sessions where title <> ''") == [(SECOND,)]


@pytest.mark.parametrize("command", [("delete", "0a1b2c3d"), ("redact", "0a1b2c3d", "1")])
async def test_without_a_question_a_session_needs_its_whole_id(two: CommandStage, command: tuple[str, ...]) -> None:
    refused = await two.run("sessions", *command, "--yes")
    unclear = await two.run("sessions", command[0], "0a1b", *command[2:], "--yes")

    assert (refused.exit_code, unclear.exit_code) == (2, 1)
    assert FIRST in refused.stderr
    assert "2 sessions have ids that begin with 0a1b." in unclear.stderr
    assert len(await two.sql("select id from sessions where title <> ''")) == 2


async def test_first_characters_of_several_ids_list_them(two: CommandStage) -> None:
    result = await two.run("sessions", "show", "0a1b")

    *candidates, error = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split()[1] for line in candidates] == [SECOND, FIRST]
    assert [line.split()[-1] for line in candidates] == ["Sea", "Harbour"]
    assert error == "Error: 2 sessions have ids that begin with 0a1b. Write more characters of the one you mean."


async def test_at_most_ten_candidates_are_listed(service: CommandStage) -> None:
    for n in range(12):
        await named(service, f"0a1b2c3d-0000-7000-8000-{n:012x}")

    result = await service.run("chat", "--session", "0a1b2c")

    assert len(result.stderr.splitlines()) == 11
    assert "Error: More than 10 sessions have ids that begin with 0a1b2c." in result.stderr


async def test_only_sessions_of_the_user_are_found_archived_ones_too(service: CommandStage) -> None:
    await named(service, FIRST, owner_id=await service.api.database.users.get_or_create("mallory"))
    await named(service, SECOND)
    await service.sql("update sessions set archived = true where id::text = $1", SECOND)

    mine = await service.run("sessions", "show", "0a1b")
    other = await service.run("sessions", "show", "0a1b2c3d")

    assert f"{SECOND} (archived)" in mine.stdout
    assert other.exit_code == 1
    assert "Error: You have no session whose id begins with 0a1b2c3d. `throughline sessions list`" in other.stderr


@pytest.mark.parametrize("given", ["0a1", "latest", "0a1-", "0a1b-\x1b[2J", f"{FIRST}0", "-".join("0a1b" * 8 + "0")])
def test_what_begins_no_id_is_a_usage_error(throughline: Throughline, given: str, tmp_path: Path) -> None:
    result = throughline("sessions", "export", given, "--output", str(tmp_path / "x"))

    assert result.exit_code == 2
    assert "is neither a session's id nor the first 4 or more characters of one." in " ".join(result.stderr.split())
