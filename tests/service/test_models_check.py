"""`throughline models check` as operators run it: against a server that answers, refuses, or is not there."""

from pathlib import Path

import pytest

from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import run_command

pytestmark = pytest.mark.slow
MODEL = "double-128k-cl100k"


def settings(address: str) -> dict[str, str]:
    return {"DEFAULT_LLM": f"openai:{MODEL}", "DEFAULT_LLM_BASE_URL": address, "LANGSMITH_TRACING": "true"}


async def test_one_real_call_is_made_without_a_database(folder: Path, provider_double: ProviderDouble) -> None:
    call = ScriptedCall("call_1", "note_result", '{"tonnes": 1607}')
    provider_double.script(ScriptStep("1,607 tonnes of grain came in.", calls=(call,)))

    code, told, complained = await run_command(folder, settings(provider_double.url), "models", "check", "assistant")

    assert code == 0, complained
    assert f"openai:{MODEL}" in told
    assert provider_double.url in told
    assert "8,192 tokens (assumed, unknown)" in told
    assert "reported (" in told
    assert "called" in told
    assert "set context.window in the agent file" in complained


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


async def test_a_server_that_is_not_there_is_named(folder: Path) -> None:
    code, told, complained = await run_command(
        folder, settings("http://127.0.0.1:1/v1"), "models", "check", "assistant"
    )

    assert code == 1
    assert "http://127.0.0.1:1/v1" in told
    assert "nothing answers at the server's address" in complained


async def test_keys_in_dotenv_and_files_beside_the_agents_count_as_in_the_service(
    folder: Path, provider_double: ProviderDouble
) -> None:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "checked_counter.py").write_text("def count(text: str) -> int:\n    return len(text)\n")
    (agents / "own.yaml").write_text(
        f"name: own\nmodel: openai:{MODEL}\ncontext: {{token_counter: 'checked_counter:count'}}\n"
    )
    (folder / ".env").write_text(f"OPENAI_API_KEY=key-from-file\nOPENAI_BASE_URL={provider_double.url}\n")

    code, told, complained = await run_command(folder, {"AGENTS_DIR": str(agents)}, "models", "check", "own")

    assert code == 0, complained
    assert provider_double.requests
    assert "checked_counter:count" in told
