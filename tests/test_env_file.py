"""The file `.env` of a program: unknown names are refused, and providers' variables reach their packages."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from throughline.assembly.env_file import (
    add_provider_variables,
    ineffective_names,
    misspelt_variables,
    read_program_settings,
)
from throughline.assembly.models import models_config
from throughline.client.summarize import count_tokens
from throughline.domain.errors import SettingInvalid
from throughline.llm.providers import PROVIDER_VARIABLES, PROVIDERS
from throughline.llm.registry import ModelRegistry

KEY = "sk-proj-hidden0123456789"
EXAMPLE = Path(__file__).parents[1] / ".env.example"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in PROVIDER_VARIABLES:
        monkeypatch.setenv(name, "restored after the test")
        monkeypatch.delenv(name)


def write(*lines: str) -> None:
    Path(".env").write_text("\n".join(lines) + "\n")


def refusal(*lines: str) -> str:
    write(*lines)
    with pytest.raises(SettingInvalid) as refused:
        read_program_settings()
    return refused.value.detail


@pytest.mark.parametrize("provider", [one for one in PROVIDERS.values() if one.variables], ids=lambda one: one.name)
def test_every_variable_of_a_provider_reaches_the_environment(provider: object) -> None:
    names = sorted(getattr(provider, "variables"))  # noqa: B009  # parametrized values are untyped
    write(*(f"{name}={KEY}" for name in names))

    read_program_settings()
    add_provider_variables()

    assert {os.environ.get(name) for name in names} == {KEY}


async def test_a_providers_package_is_given_its_key_from_the_file() -> None:
    write("DEFAULT_LLM=openai:gpt-4o", f"OPENAI_API_KEY={KEY}")
    models = ModelRegistry(models_config(read_program_settings()))
    with pytest.raises(SettingInvalid, match="OPENAI_API_KEY"):
        models.get("")

    add_provider_variables()

    assert models.get("").name == "openai:gpt-4o"
    await models.close()


def test_the_environment_wins_over_the_file_unless_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    monkeypatch.setenv("GROQ_API_KEY", "")
    write(f"OPENAI_API_KEY={KEY}", f"GROQ_API_KEY={KEY}")

    add_provider_variables()

    assert (os.environ["OPENAI_API_KEY"], os.environ["GROQ_API_KEY"]) == ("of-the-environment", KEY)


def test_settings_and_named_keys_stay_out_of_the_environment() -> None:
    write(
        "DEFAULT_LLM=openai:small",
        "DEFAULT_LLM_BASE_URL=http://127.0.0.1:8080/v1",
        "DEFAULT_LLM_API_KEY_ENV=GATEWAY_KEY",
        "TRACING_HEADERS_ENV=COLLECTOR_HEADERS",
        "COLLECTOR_HEADERS=x-team=blue",
        f"GATEWAY_KEY={KEY}",
        "SLACK_BOT_TOKEN=xoxb-1",
    )
    before = dict(os.environ)

    settings = read_program_settings()
    add_provider_variables()

    assert dict(os.environ) == before
    assert models_config(settings).read_variable("GATEWAY_KEY") == KEY


def test_reading_settings_alone_puts_nothing_into_the_environment() -> None:
    write("LOG_LEVEL=INFO", f"OPENAI_API_KEY={KEY}", "SOMEBODY_ELSES=1")

    assert count_tokens("a word")
    assert "OPENAI_API_KEY" not in os.environ


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("DEFAULT_LLM_BASEURL=http://127.0.0.1:8080/v1", "(line 2, did you mean DEFAULT_LLM_BASE_URL?)"),
        ("default_lm=offline", "default_lm (line 2, did you mean DEFAULT_LLM?)"),
        (f"OPENAI_API_KYE={KEY}", "OPENAI_API_KYE (line 2, did you mean OPENAI_API_KEY?)"),
        (f"openai_api_key={KEY}", "openai_api_key (line 2, did you mean OPENAI_API_KEY?)"),
        (f"export OPEN_AI_API_KEY='{KEY}'", "OPEN_AI_API_KEY (line 2, did you mean OPENAI_API_KEY?)"),
        ("WEATHER_STATION=7", "WEATHER_STATION (line 2)"),
        (KEY, "line 2 is not written as NAME=value"),
        (f"{KEY}=", ""),
        (f"{KEY}==", "the name in line 2"),
    ],
)
def test_an_unknown_name_is_refused_with_its_line_and_no_value(line: str, hint: str) -> None:
    if not hint:  # an empty line sets nothing
        write("PORT=8000", line)
        read_program_settings()
        return

    detail = refusal("PORT=8000", line)

    assert detail.startswith("`.env` has names that are not known: ")
    assert hint in detail
    assert "hidden" not in detail


def test_an_unknown_name_is_told_before_the_setting_that_needs_it() -> None:
    detail = refusal("EMBEDING_MODEL=openai:small", "EMBEDDING_BASE_URL=http://127.0.0.1:8080/v1")

    assert "EMBEDING_MODEL (line 1, did you mean EMBEDDING_MODEL?)" in detail


def test_many_unknown_names_still_fit_a_screen() -> None:
    detail = refusal(*(f"UNHEARD_OF_{number}=1" for number in range(30)))

    assert "UNHEARD_OF_7 (line 8); 22 more. Correct or remove them." in detail


def test_names_of_settings_docker_compose_libraries_and_tracers_are_taken() -> None:
    write(
        "POSTGRES_PASSWORD=x", "COMPOSE_PROFILES=slack", "PGHOST=db", "LC_ALL=C", "TZ=UTC", "https_proxy=http://p",
        "SSL_CERT_FILE=/x", "LANGSMITH_TRACING=true", "OTEL_SERVICE_NAME=x", "log_level=INFO", "# COMMENT=1", "EMPTY=",
    )  # fmt: skip

    assert read_program_settings().log_level == "INFO"
    assert ineffective_names() == ("LC_ALL", "PGHOST", "SSL_CERT_FILE", "TZ", "https_proxy")


def test_the_example_with_every_setting_taken_is_accepted() -> None:
    lines = [line.removeprefix("# ") for line in EXAMPLE.read_text().splitlines() if line.startswith("# ")]
    assigned = [line for line in lines if line.partition("=")[0].replace("_", "").isupper() and "=" in line]
    write(*(line for line in assigned if line.partition("=")[2]), f"OPENAI_API_KEY={KEY}")

    assert len(assigned) > 50
    assert read_program_settings().default_llm == "offline"


def test_a_key_that_an_agent_file_names_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "own.yaml").write_text("model: openai:x\nbase_url: http://h/v1\n\"api_key_env\": 'MY_VLLM_KEY'\n")
    (folder / "two.yml").write_text("context: {summary: {api_key_env: OTHER_KEY}}\n")
    (folder / "broken.yaml").write_bytes(b"\xff")
    write(f"AGENTS_DIR={folder}", f"MY_VLLM_KEY={KEY}", f"OTHER_KEY={KEY}")

    assert read_program_settings().agents_dir == folder
    assert "THIRD_KEY" in refusal(f"AGENTS_DIR={folder}", f"THIRD_KEY={KEY}")


def test_variables_that_servers_of_tools_get_are_known(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "own.yaml").write_text(
        "mcp_servers:\n"
        "  a: {command: [x], env: {TOKEN: A_TOKEN}}\n"
        "  b: {url: 'http://h/mcp', headers: {Authorization: \"B_TOKEN\"}}\n"
        "  c:\n    url: http://h/mcp\n    oauth:\n      client_id: C_ID  # an id\n      client_secret: C_SECRET\n"
    )
    write(f"AGENTS_DIR={folder}", *(f"{name}={KEY}" for name in ("A_TOKEN", "B_TOKEN", "C_ID", "C_SECRET")))

    assert read_program_settings().agents_dir == folder
    assert "C_OTHER" in refusal(f"AGENTS_DIR={folder}", f"C_OTHER={KEY}")


def test_a_file_in_another_encoding_is_refused_in_words() -> None:
    Path(".env").write_bytes(b"BOOTSTRAP_API_KEY=\xe4\n")

    with pytest.raises(SettingInvalid, match=r"`\.env` is not UTF-8"):
        read_program_settings()


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"DEFAULT_LLM_BASEURL": "x"}, {"DEFAULT_LLM_BASEURL": "DEFAULT_LLM_BASE_URL"}),
        ({"DATABASE_URI": "x"}, {"DATABASE_URI": "DATABASE_URL"}),
        ({"DATABASE_URI": "x", "DATABASE_URL": "y"}, {}),
        ({"TEST_DATABASE_URL": "x", "HOSTS": "x", "PORTS": "1", "LOGLEVEL": "x", "OPENAI_API_BASE": "x"}, {}),
        ({"database_url": "x", "SLACK_API_URLS": "x"}, {"SLACK_API_URLS": "SLACK_API_URL"}),
    ],
)
def test_a_variable_that_nearly_names_a_setting_is_found_but_not_refused(
    environment: Mapping[str, str], found: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert misspelt_variables() == found
