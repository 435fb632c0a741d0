import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from click.testing import Result

from fakes.api_stage import KEYED
from fakes.command_stage import CommandStage, FakeWorld
from fakes.stage import AGENT
from fakes.wire_shapes import session_out
from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.cli.client import ServiceClient, read_json
from throughline.cli.commands_sessions import draw_sessions
from throughline.cli.connection import ServiceTarget, open_client
from throughline.cli.dependencies import LocalOptions, ServeOptions, WorkerOptions
from throughline.domain.errors import ThroughlineError
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import ModelParameters
from throughline.wire.sessions import SessionOut

Throughline = Callable[..., Result]
MANY_SESSIONS = """
    insert into sessions (id, owner_id, agent, title, source, updated_at)
    select lpad(to_hex(n), 32, '0')::uuid, $1, 'assistant', 'talk ' || n, 'cli', now() + n * interval '1 second'
    from generate_series(1, 130) n
"""


def test_serve_hands_its_options_on_and_leaves_the_rest_to_the_settings(
    world: FakeWorld, throughline: Throughline, tmp_path: Path
) -> None:
    throughline("serve")
    throughline("serve", "--host", "10.0.0.1", "--port", "9", "--data-dir", str(tmp_path), "--no-worker")

    assert world.served == [
        ServeOptions(),
        ServeOptions(host="10.0.0.1", port=9, data_dir=tmp_path, no_worker=True),
    ]


@pytest.mark.parametrize("value", ["x", "3:4:1:2", "0:0:1:1", "999999999:4:1:2"])
def test_a_child_process_that_no_supervisor_started_is_refused(
    world: FakeWorld, throughline: Throughline, value: str
) -> None:
    refused = throughline("serve", "--child", value)

    assert refused.exit_code == 2
    assert "Use --processes to have several." in " ".join(refused.stderr.split())
    assert world.served == []


def test_worker_hands_its_options_on(world: FakeWorld, throughline: Throughline) -> None:
    throughline("worker", "--concurrency", "3")
    throughline("worker", "--health-port", "0")

    assert world.worked == [WorkerOptions(concurrency=3), WorkerOptions(health_port=0)]


def test_the_version_is_printed(throughline: Throughline) -> None:
    assert throughline("--version").stdout.startswith("throughline, version ")


@pytest.mark.parametrize(
    "dependencies",
    [{"agents": AgentRegistry([replace(AGENT, description="[b]assistant[/b]"), replace(AGENT, name="other")])}],
)
async def test_agents_are_listed_with_their_text_as_it_is(service: CommandStage) -> None:
    result = await service.run("agents")

    assert "other" in result.stdout
    assert "[b]assistant[/b]" in result.stdout


async def unknown_window(_agent: AgentDefinition) -> ModelWindow:
    return ModelWindow(8192, WindowOrigin.UNKNOWN)


async def test_agents_are_listed_with_their_windows(service: CommandStage) -> None:
    listed = await service.run("agents")
    shown = await service.run("agents", "assistant")

    assert "40,960" in listed.stdout
    assert "assumed" not in listed.stdout + listed.stderr
    assert "window: 40960\nwindow_from: server" in shown.stdout


@pytest.mark.parametrize("dependencies", [{"agent_window": unknown_window}])
async def test_an_assumed_window_is_marked_and_the_setting_named(service: CommandStage) -> None:
    listed = await service.run("agents")
    shown = await service.run("agents", "assistant")

    assert "8,192 (assumed)" in listed.stdout
    assert "set context.window in the agent file" in listed.stderr
    assert "window: 8192\nwindow_from: unknown (assumed; set context.window in the agent file)" in shown.stdout


async def test_without_an_address_the_service_is_opened_where_the_data_lies(
    service: CommandStage, tmp_path: Path
) -> None:
    await service.run("agents", "--data-dir", tmp_path)

    assert service.world.opened == [LocalOptions(tmp_path)]


async def test_only_a_chat_asks_for_a_service_that_takes_turns(service: CommandStage) -> None:
    await service.run("chat", typed="/quit\n")
    await service.run("sessions", "list")

    assert service.world.opened == [LocalOptions(takes_turns=True), LocalOptions()]


def test_a_service_that_does_not_answer_is_one_sentence_that_says_what_to_do(throughline: Throughline) -> None:
    result = throughline("agents", "--url", "http://127.0.0.1:1")

    assert result.exit_code == 1
    assert result.stderr == (
        "Error: Cannot connect to http://127.0.0.1:1. Start the service with `throughline serve`, or check --url.\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("agents", "--url", "ftp://x"),
        ("agents", "--url", "nonsense"),
        ("agents", "--url", "http://x", "--api-key", "two words"),
        ("sessions", "show", "../agents"),
        ("serve", "--port", "70000"),
        ("keys", "create", "--scope", "everything"),
    ],
)
def test_bad_arguments_are_usage_errors(throughline: Throughline, arguments: tuple[str, ...]) -> None:
    assert throughline(*arguments).exit_code == 2


@pytest.mark.parametrize("config", [KEYED])
async def test_a_refused_key_names_the_option(service: CommandStage) -> None:
    result = await service.run("agents")

    assert result.exit_code == 1
    assert "create`. Give a key with --api-key or THROUGHLINE_API_KEY." in result.stderr


async def test_sessions_are_listed_filtered_and_paged(service: CommandStage) -> None:
    await service.sql(MANY_SESSIONS, service.owner_id)

    everything = await service.run("sessions", "list", "--limit", 130)
    filtered = await service.run("sessions", "list", "--q", "talk 77")
    first = await service.run("sessions", "list", "--limit", 2)
    second = await service.run("sessions", "list", "--limit", 2, "--cursor", first.stderr.split("--cursor ")[1].strip())

    lines = everything.stdout.splitlines()
    assert len(lines) == 131
    assert str(UUID(int=77)) in filtered.stdout
    assert len(filtered.stdout.splitlines()) == 2
    assert "there are more: --cursor " in first.stderr
    assert [*first.stdout.splitlines()[1:], *second.stdout.splitlines()[1:]] == lines[1:5]


async def test_sessions_are_found_by_external_id_and_metadata(service: CommandStage) -> None:
    for title, external_id, metadata in (("one", "order 7", '{"a": 1, "b": 2}'), ("two", None, '{"a": 1}')):
        session = (await service.session(title)).session
        changed = "update sessions set external_id = $2, metadata = cast($3 as jsonb) where id = $1"
        await service.sql(changed, session.id, external_id, metadata)

    by_id = await service.run("sessions", "list", "--external-id", "order 7")
    by_metadata = await service.run("sessions", "list", "--metadata", '{"a": 1}')
    refused = await service.run("sessions", "list", "--metadata", "a=1")
    shown = await service.run("sessions", "show", by_id.stdout.splitlines()[1].split()[0])

    assert [line.split()[-1] for line in by_id.stdout.splitlines()[1:]] == ["one"]
    assert [line.split()[-1] for line in by_metadata.stdout.splitlines()[1:]] == ["two", "one"]
    assert (refused.exit_code, "metadata: The text is not valid JSON" in refused.stderr) == (1, True)
    assert "External order 7" in shown.stdout


@pytest.mark.parametrize("width", [80, 110])
def test_a_list_of_sessions_keeps_its_numbers_and_cuts_its_titles(width: int) -> None:
    sessions = [
        session_out(agent="quick_assistant", title="An exceedingly long title " * 9, message_count=1_234),
        session_out(title="short", message_count=7),
    ]

    lines = draw_sessions(sessions, width=width).plain.split("\n")

    assert lines[0].split() == ["ID", "Agent", "Messages", "Updated", "Title"]
    assert " 1234 " in lines[1]
    assert "An excee" in lines[1]
    assert lines[1].endswith("…")
    assert " 7 2026-05-04" in lines[2]
    assert lines[2].endswith(" short")
    assert max(map(len, lines)) <= width


async def test_a_session_without_messages_is_told_in_words(service: CommandStage) -> None:
    talk = await service.talk(0)

    result = await service.run("sessions", "show", talk.session.id)

    assert "No messages yet." in result.stdout
    assert "summarized)" not in result.stdout


async def test_show_prints_details_and_context(service: CommandStage) -> None:
    talk = await service.talk(3, title="a [b] title")

    result = await service.run("sessions", "show", talk.session.id)

    assert "a [b] title" in result.stdout
    assert "3 messages in history\n" in result.stdout
    assert "window" in result.stdout


async def test_export_writes_the_session_and_every_message_as_json_lines(service: CommandStage, tmp_path: Path) -> None:
    said = "日本\u2028\x9b\x1b[2J"
    session_id = (await service.talk(205, title="x", texts={1: said})).session.id
    folder = tmp_path / "exported"
    folder.mkdir()

    printed = await service.run("sessions", "export", session_id)
    await service.run("sessions", "export", session_id, "--output", folder / "out.jsonl")

    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert printed.stdout == (folder / "out.jsonl").read_text("utf-8")
    assert [line["type"] for line in lines] == ["session"] + ["message"] * 205
    assert [line["position"] for line in lines[1:]] == list(range(1, 206))
    assert lines[1]["content"] == said
    assert "\x9b" not in printed.stdout
    assert list(folder.iterdir()) == [folder / "out.jsonl"]


async def test_an_export_holds_only_what_is_stored(service: CommandStage) -> None:
    talk = await service.talk(2, texts={2: "see [#1]"})

    printed = await service.run("sessions", "export", talk.session.id)

    assert [sorted(json.loads(line).keys() & {"content", "citations"}) for line in printed.stdout.splitlines()] == [
        [],
        ["content"],
        ["content"],
    ]


async def test_an_export_that_fails_leaves_no_file(service: CommandStage, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    folder.mkdir()

    result = await service.run("sessions", "export", UUID(int=5), "--output", folder / "out")

    assert result.exit_code == 1
    assert list(folder.iterdir()) == []


async def test_delete_asks_first(service: CommandStage) -> None:
    session_id = (await service.session("kept")).session.id

    refused = await service.run("sessions", "delete", session_id, typed="n\n")
    kept = await service.titles()
    agreed = await service.run("sessions", "delete", session_id, "--yes")

    assert (refused.exit_code, kept) == (1, ["kept"])
    assert agreed.exit_code == 0
    assert await service.titles() == []


def test_the_database_status_fails_until_it_is_upgraded(throughline: Throughline) -> None:
    before = throughline("db", "status")
    upgrade = throughline("db", "upgrade")
    after = throughline("db", "status")

    assert before.exit_code == 1
    assert "throughline db upgrade" in before.stderr
    assert (upgrade.exit_code, after.exit_code) == (0, 0)


def test_the_databases_address_stands_alone_on_standard_output(throughline: Throughline) -> None:
    result = throughline("db", "address")

    assert result.exit_code == 0
    assert result.stdout == "postgresql://host/name\n"
    assert "embedded" in result.stderr


@pytest.mark.parametrize("config", [KEYED])
async def test_a_running_service_is_reached_by_its_address_with_the_key(service: CommandStage) -> None:
    async with service.api.served() as http:
        target = ServiceTarget(service.world.dependencies(), str(http.base_url), await service.api.key("ann"), None)
        async with open_client(target) as client:
            agents = await client.agents()

    assert [agent.name for agent in agents] == ["assistant", "quick_assistant", "researcher"]
    assert service.world.opened == []


@pytest.mark.parametrize(
    ("body", "told"), [(b"<html>", "Check --url"), (b'{"data": 7}', "cannot be read as agent list")]
)
async def test_something_else_that_answers_is_told_from_a_service(body: bytes, told: str) -> None:
    status = 404 if body.startswith(b"<") else 200
    transport = httpx.MockTransport(lambda _request: httpx.Response(status, content=body))

    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        with pytest.raises(ThroughlineError, match=told):
            await ServiceClient(http, place="http://x").agents()


def test_a_field_of_a_newer_service_is_passed_over() -> None:
    session = session_out()
    newer = json.dumps({**session.model_dump(mode="json"), "a_field_of_later": 1})

    assert read_json(SessionOut, newer) == session


@pytest.mark.parametrize(
    "dependencies",
    [
        {
            "agents": AgentRegistry([
                replace(
                    AGENT,
                    name="writer",
                    parameters=ModelParameters(temperature=0.2, stop=("END",), headers={"X-Team": "s3cret"}),
                )
            ])
        }
    ],
)
async def test_an_agent_is_shown_with_its_parameters_and_policy_but_no_values_of_headers(service: CommandStage) -> None:
    shown = (await service.run("agents", "writer")).stdout
    missing = await service.run("agents", "nobody")

    assert "temperature: 0.2\n" in shown
    assert "stop: [END]\n" in shown
    assert "headers: [X-Team]\n" in shown
    assert "s3cret" not in shown
    assert "  usage_threshold: 0.8\n" in shown
    assert missing.exit_code == 1
    assert "There is no agent 'nobody'. The service has: writer." in missing.stderr


def test_erasing_a_user_is_asked_for_and_reported(database_url: str) -> None:
    world = FakeWorld(database_url=database_url)
    world.run("keys", "create", "--user", "anna")

    refused = world.run("users", "erase", "anna", typed="n\n")
    erased = world.run("users", "erase", "anna", "--yes")
    again = world.run("users", "erase", "anna", "--yes")

    assert (refused.exit_code, "Erase the user anna" in refused.output) == (1, True)
    assert (erased.exit_code, "user anna is erased:" in erased.stdout) == (0, True)
    assert "memories: 0, keys: 1, access tokens: 0" in erased.stdout
    assert "records of costs: 0, which stay without the user" in erased.stdout
    assert (again.exit_code, "There is no user 'anna'" in again.stderr) == (1, True)
