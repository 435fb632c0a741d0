"""Starting: what cannot work is refused at once, in a sentence."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from fakes.pooler import environment_of
from fakes.programs import environment_for_programs
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import (
    ServiceProcess,
    free_port,
    is_ready,
    run_command,
    run_service,
    run_worker,
    start_program,
)
from fakes.slack_double import BOT_TOKEN, SIGNING_SECRET, Sender, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.waiting import HANG_SECONDS, until


async def outcome_of(folder: Path, environment: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    log = folder / "program.log"
    process = await start_program(folder, environment, *arguments, log=log)
    try:
        async with asyncio.timeout(HANG_SECONDS):
            code = await process.wait()
    finally:
        process.kill()
    return code, log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"DATABASE_URL": "postgresql://nobody:hunter2@127.0.0.1:1/none"},
            "127.0.0.1:1 (DATABASE_URL): the connection was refused",
        ),
        ({"DATABASE_URL": "mysql://localhost/x"}, "PostgreSQL"),
        ({"DEFAULT_LLM": "openai:gpt-4o"}, "OPENAI_API_KEY"),
        ({"DEFAULT_LLM": "nonsense:model"}, "nonsense"),
        ({"EMBEDDING_MODEL": "openai:text-embedding-3-small"}, "OPENAI_API_KEY"),
        ({"EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1"}, "need EMBEDDING_MODEL"),
        ({"CONTEXT_USAGE_THRESHOLD": "7"}, "CONTEXT_USAGE_THRESHOLD"),
        ({"AGENTS_DIR": "missing-folder"}, "missing-folder"),
        ({"BOOTSTRAP_API_KEY": "short"}, "at least 24 characters"),
        ({"SLACK_BOT_TOKEN": "xoxb-1"}, "SLACK_SIGNING_SECRET is not set. Set it to the signing secret"),
        ({"SLACK_AGENT": "nope"}, "SLACK_AGENT: There is no agent 'nope'. Known agents: assistant"),
        ({"HOST": "exa mple"}, "Cannot listen on exa mple"),
        ({"CORS_ORIGINS": "*"}, "CORS_ORIGINS: * would serve every web page"),
        ({"HOST": "0.0.0.0"}, "BOOTSTRAP_API_KEY"),  # noqa: S104  # the bind that must be refused
    ],
    ids=[
        "no database",
        "other database",
        "no key",
        "no provider",
        "no embedding key",
        "no embedding model",
        "bad setting",
        "no folder",
        "short key",
        "half of slack",
        "no slack agent",
        "no host",
        "any page",
        "open bind",
    ],
)
async def test_a_start_that_cannot_work_ends_with_a_sentence_and_no_traceback(
    folder: Path, environment: Mapping[str, str], said: str, database_url: str
) -> None:
    code, output = await outcome_of(folder, {**environment_of(database_url), **environment}, "serve", "--port", "0")

    assert code == 1
    assert said in output
    assert "Traceback" not in output
    assert "hunter2" not in output


@pytest.mark.slow
async def test_a_misspelt_name_in_the_file_ends_the_start_without_its_value(folder: Path, database_url: str) -> None:
    (folder / ".env").write_text("OPENAI_API_KYE=hunter2\n")

    code, output = await outcome_of(folder, environment_of(database_url), "serve", "--port", "0")

    assert code == 1
    assert "OPENAI_API_KYE (line 1, did you mean OPENAI_API_KEY?)" in output
    assert "Traceback" not in output
    assert "hunter2" not in output


@pytest.mark.slow
async def test_a_providers_key_in_the_file_is_enough_to_start(folder: Path, database_url: str) -> None:
    (folder / ".env").write_text("OPENAI_API_KEY=hunter2\n")
    port, environment = free_port(), {**environment_of(database_url), "DEFAULT_LLM": "openai:gpt-4o"}

    async with run_service(folder, environment, port=port), httpx.AsyncClient() as client:
        found = await client.get(f"http://127.0.0.1:{port}/")

    assert found.json()["links"]["reference"] == "docs"


@pytest.mark.slow
async def test_a_taken_port_is_named(folder: Path, database_url: str) -> None:
    port, environment = free_port(), environment_of(database_url)
    async with run_service(folder, environment, port=port):
        code, output = await outcome_of(folder, environment, "serve", "--port", str(port))

    assert code == 1
    assert str(port) in output
    assert "Traceback" not in output


@pytest.mark.slow
async def test_the_installed_command_serves_until_it_is_told_to_stop(folder: Path) -> None:
    """The other tests fork a process that has everything loaded; this one is started as people do."""
    command = Path(sys.executable).with_name("throughline")
    arguments = ("serve", "--port", "0", "--data-dir", str(folder / "data"))
    process = await asyncio.create_subprocess_exec(
        command, *arguments, stdout=asyncio.subprocess.PIPE, env=environment_for_programs(), cwd=folder
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANG_SECONDS):
            told = [(await process.stdout.readline()).decode().split() for _ in range(6)]
            process.send_signal(signal.SIGTERM)
            await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    address = told[0][-1]
    assert told[0][:-1] == ["Throughline", "is", "serving", "on"]
    assert told[1][:2] == ["model", "offline"]
    assert told[2] == ["database", "embedded,", "in", str((folder / "data").resolve())]
    assert told[3:] == [
        ["browser", f"{address}/console/sessions"],
        ["interface", f"{address}/docs"],
        ["chat", "throughline", "chat", "--url", address],
    ]
    assert process.returncode == 0


TOOL = "def number() -> int:\n    '''Return a number.'''\n    return 1\n"


def write(folder: Path, prompt: str, further: str = "") -> None:
    (folder / "own.yaml").write_text(
        f"name: own\nsystem_prompt: {prompt}\ndescription: {prompt}\ntools: ['reread_tools:number']\n{further}"
    )


def prepared(folder: Path) -> Path:
    agents = folder / "agents"
    agents.mkdir()
    write(agents, "first")
    (agents / "reread_tools.py").write_text(TOOL)
    return agents


async def told(log: Path, event: str, times: int = 1) -> list[dict[str, object]]:
    """Return the lines of an event, once there are so many."""

    def lines() -> list[dict[str, object]]:
        found = [line for line in log.read_text().splitlines() if event in line]
        return [json.loads(line) for line in found]

    await until(lambda: len(lines()) >= times)
    return lines()


async def prompt_of_turn(service: ServiceProcess, double: ProviderDouble) -> str:
    """Return the system prompt with which a new session is answered."""
    session = await service.new_session("own")
    (await service.send(session, "hi")).raise_for_status()
    return str(double.requests[-1].prompt[0]["content"])


@pytest.mark.slow
async def test_a_changed_file_answers_and_an_invalid_one_leaves_the_agent_as_it_was(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    agents = prepared(folder)
    async with run_service(folder, {**on_double, "AGENTS_DIR": str(agents)}) as service:
        assert await prompt_of_turn(service, provider_double) == "first"

        write(agents, "second")
        await told(service.log, "agent files read again")
        assert await prompt_of_turn(service, provider_double) == "second"

        write(agents, "third", "max_tool_rounds: many\n")
        (refused,) = await told(service.log, "agent files refused")
        assert refused["error"] == f"{agents}/own.yaml: max_tool_rounds: 'many' must be a whole number"
        assert await is_ready(service.client)
        assert await prompt_of_turn(service, provider_double) == "second"

        write(agents, "fourth")
        await told(service.log, "agent files read again", 2)
        assert await prompt_of_turn(service, provider_double) == "fourth"

        (agents / "reread_tools.py").write_text(TOOL.replace("return 1", "return 2222"))
        (changed,) = await told(service.log, "tool modules changed")
        assert changed["files"] == ["reread_tools.py"]


@pytest.mark.slow
async def test_a_removed_agent_fails_its_turns_and_keeps_their_messages(
    folder: Path, on_double: Mapping[str, str]
) -> None:
    agents = prepared(folder)
    async with run_service(folder, {**on_double, "AGENTS_DIR": str(agents)}) as service:
        session = await service.new_session("own")
        (agents / "own.yaml").unlink()
        (line,) = await told(service.log, "agent files read again")
        assert (line["changed"], line["removed"]) == ([], ["own"])

        refused = await service.send(session, "are you there?")

        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (404, "/problems/not_found")
        assert "There is no agent 'own'. Known agents: assistant, " in problem["detail"]
        assert [message["content"] for message in await service.history(session)] == ["are you there?"]


@pytest.mark.slow
async def test_a_worker_of_its_own_follows_the_files_too(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    agents = prepared(folder)
    environment = {**on_double, "AGENTS_DIR": str(agents)}
    async with run_service(folder, environment, "--no-worker") as service, run_worker(folder, environment):
        write(agents, "second")
        await told(folder / "worker.log", "agent files read again")

        assert await prompt_of_turn(service, provider_double) == "second"


@pytest.mark.slow
async def test_files_are_read_at_start_only_if_the_setting_says_so(folder: Path, on_double: Mapping[str, str]) -> None:
    agents = prepared(folder)
    environment = {**on_double, "AGENTS_DIR": str(agents), "AGENTS_RELOAD": "false"}
    async with run_service(folder, environment) as service, run_worker(folder, {**environment, "AGENTS_RELOAD": ""}):
        write(agents, "second")
        await told(folder / "worker.log", "agent files read again")

        described = (await service.client.get("/v1/agents")).raise_for_status().json()

    assert "agent files read again" not in service.log.read_text()
    assert {agent["description"] for agent in described["data"] if agent["name"] == "own"} == {"first"}


MODEL, OTHER = "double-128k-cl100k", "double-16k-cl100k"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA}}


def environment(folder: Path, on_double: Mapping[str, str], double: ProviderDouble) -> Mapping[str, str]:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "own.yaml").write_text(
        "name: own\nsystem_prompt: Count.\noverrides: [model, temperature, instructions, response_format]\n"
        f"override_models: [{{model: 'openai:{OTHER}', base_url: '{double.url}'}}]\n"
    )
    return {**on_double, "AGENTS_DIR": str(agents)}


@pytest.mark.slow
async def test_the_provider_is_sent_what_the_request_overrides(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep('{"n": 1}'), ScriptStep("as always"))
    async with run_service(folder, environment(folder, on_double, provider_double)) as service:
        session = await service.new_session("own")
        path = f"/v1/sessions/{session}/messages"
        overrides = {
            "model": f"openai:{OTHER}",
            "temperature": 0.5,
            "instructions": "Be brief.",
            "response_format": FORMAT,
        }
        answered = await service.client.post(path, json={"content": "hi", "overrides": overrides})
        plain = await service.client.post(path, json={"content": "and now?"})

    assert answered.json()["message"]["content"] == '{"n": 1}'
    assert plain.json()["message"]["content"] == "as always"
    changed, usual = provider_double.requests
    assert (changed.model, changed.prompt[0]["content"]) == (OTHER, "Count.\n\nBe brief.")
    assert changed.settings == {"temperature": 0.5, "response_format": FORMAT}
    assert (usual.model, usual.prompt[0]["content"], usual.settings) == (MODEL, "Count.", {})


@pytest.mark.slow
async def test_readers_see_a_rejected_answer_reset_and_a_failed_run_keeps_its_last(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ScriptStep("one"), ScriptStep('{"n": 1}'), ScriptStep("two"), ScriptStep("still two"))
    body = {"content": "hi", "overrides": {"response_format": FORMAT}}
    async with run_service(folder, environment(folder, on_double, provider_double)) as service:
        path = f"/v1/sessions/{await service.new_session('own')}/messages"
        streamed = await service.client.post(path, json=body, headers={"Accept": "text/event-stream"})
        failed = await service.client.post(path, json=body)

    names = [line.removeprefix("event: ") for line in streamed.text.splitlines() if line.startswith("event: ")]
    assert names.index("message.delta") < names.index("reset") < len(names) - names[::-1].index("message.delta")
    assert names[-1] == "run.completed"
    problem = failed.json()
    assert (failed.status_code, problem["type"]) == (502, "/problems/answer_not_in_format")
    assert (problem["message"]["content"], problem["message"]["metadata"]) == ("still two", {"rejected": True})
    assert problem["run"]["message_id"] == problem["message"]["id"]


CHECKED_MODEL = "double-128k-cl100k"


def settings(address: str) -> dict[str, str]:
    return {"DEFAULT_LLM": f"openai:{CHECKED_MODEL}", "DEFAULT_LLM_BASE_URL": address, "LANGSMITH_TRACING": "true"}


@pytest.mark.slow
async def test_one_real_call_is_made_without_a_database(folder: Path, provider_double: ProviderDouble) -> None:
    call = ScriptedCall("call_1", "note_result", '{"tonnes": 1607}')
    provider_double.script(ScriptStep("1,607 tonnes of grain came in.", calls=(call,)))

    code, told, complained = await run_command(folder, settings(provider_double.url), "models", "check", "assistant")

    assert code == 0, complained
    assert f"openai:{CHECKED_MODEL}" in told
    assert provider_double.url in told
    assert "8,192 tokens (assumed, unknown)" in told
    assert "reported (" in told
    assert "called" in told
    assert "set context.window in the agent file" in complained


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["assistant", "nobody"])
async def test_a_failure_ends_with_its_cause_and_code_1(
    agent: str, folder: Path, provider_double: ProviderDouble
) -> None:
    if agent == "assistant":
        provider_double.script(ScriptStep(failure=Failure.QUOTA))

    code, _, complained = await run_command(folder, settings(provider_double.url), "models", "check", agent)

    assert code == 1
    assert ("There is no agent 'nobody'" if agent == "nobody" else "no credit or quota") in complained
    assert "Traceback" not in complained


@pytest.mark.slow
async def test_a_server_that_is_not_there_is_named(folder: Path) -> None:
    code, told, complained = await run_command(
        folder, settings("http://127.0.0.1:1/v1"), "models", "check", "assistant"
    )

    assert code == 1
    assert "http://127.0.0.1:1/v1" in told
    assert "nothing answers at the server's address" in complained


@pytest.mark.slow
async def test_keys_in_dotenv_and_files_beside_the_agents_count_as_in_the_service(
    folder: Path, provider_double: ProviderDouble
) -> None:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "checked_counter.py").write_text("def count(text: str) -> int:\n    return len(text)\n")
    (agents / "own.yaml").write_text(
        f"name: own\nmodel: openai:{CHECKED_MODEL}\ncontext: {{token_counter: 'checked_counter:count'}}\n"
    )
    (folder / ".env").write_text(f"OPENAI_API_KEY=key-from-file\nOPENAI_BASE_URL={provider_double.url}\n")

    code, told, complained = await run_command(folder, {"AGENTS_DIR": str(agents)}, "models", "check", "own")

    assert code == 0, complained
    assert provider_double.requests
    assert "checked_counter:count" in told


class ElsewhereListener:
    """A server that stands for all other addresses and keeps what is sent to it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.read(500))
        writer.close()


@pytest.fixture
async def elsewhere() -> AsyncGenerator[ElsewhereListener]:
    listener = ElsewhereListener()
    async with listener.listening():
        yield listener


@pytest.fixture
def environment_called(
    on_double: Mapping[str, str], provider_double: ProviderDouble, slack: SlackDouble, elsewhere: ElsewhereListener
) -> Mapping[str, str]:
    """Everything the service calls is a double at this address; all else goes through a proxy, which is `elsewhere`."""
    url = elsewhere.url
    tracing = {f"{maker}_TRACING{version}": "true" for maker in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")}
    endpoints = {"LANGSMITH_ENDPOINT": url, "LANGCHAIN_ENDPOINT": url, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    return {
        **on_double,
        "EMBEDDING_MODEL": "openai:small",
        "EMBEDDING_BASE_URL": provider_double.url,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": slack.url,
        **tracing,
        **endpoints,
        "LANGSMITH_API_KEY": "lsv2-of-another-program",
        "LANGSMITH_OTEL_ENABLED": "true",
        "ALL_PROXY": url,  # Slack's SDK passes over NO_PROXY, and knows this one not
        "NO_PROXY": "127.0.0.1,localhost",
    }


async def use_everything(service: ServiceProcess, slack: SlackDouble) -> None:
    """Have turns, a summary, an embedding and an answer in Slack."""
    session = await service.new_session()
    for number in range(6):
        (await service.send(session, f"stone {number} " + "and another word " * 40)).raise_for_status()
    summary = (await service.client.post(f"/v1/sessions/{session}/summarize")).raise_for_status().json()
    assert summary["outcome"] == "adopted", summary
    (await service.client.post("/v1/memories", json={"text": "The cat is called Miso."})).raise_for_status()
    async with asyncio.timeout(HANG_SECONDS):
        while (await _search_memories(service)) != "vector":
            await asyncio.sleep(0.1)
        await Sender(service.client).deliver(message(say("What is 6 * 7?")))
        while not [posted for posted in slack.workspace.posted if not posted.is_streaming]:
            await asyncio.sleep(0.05)


async def _search_memories(service: ServiceProcess) -> str:
    answer = await service.client.post("/v1/memories/search", json={"query": "feline"})
    return str(answer.raise_for_status().json()["by"])


@pytest.mark.slow
@pytest.mark.usefixtures("pgvector")
async def test_nothing_is_sent_to_an_address_that_no_setting_names(
    folder: Path, environment_called: Mapping[str, str], slack: SlackDouble, elsewhere: ElsewhereListener
) -> None:
    async with run_service(folder, environment_called) as service:
        await use_everything(service, slack)
        await service.terminate()

    assert elsewhere.received == []
    assert "tracing variables ignored" in service.log.read_text()
