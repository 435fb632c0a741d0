"""Settings from the environment: empty ones, addresses, and numbers nothing could wait for."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from throughline.assembly.env_file import read_program_settings
from throughline.domain.errors import SettingInvalid
from throughline.settings import Settings


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def reading(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return read_program_settings()


def test_an_empty_variable_is_as_if_it_were_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reading({"AGENTS_DIR": "", "DATA_DIR": "", "DEFAULT_LLM": "", "DB_POOL_SIZE": ""}, monkeypatch)

    assert (found.agents_dir, found.data_dir, found.default_llm, found.db_pool_size) == (None, None, "offline", 10)


def test_an_empty_line_of_the_file_is_as_if_it_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("AGENTS_DIR=\nDATA_DIR=\nDEFAULT_LLM=\n")

    found = reading({}, monkeypatch)

    assert (found.agents_dir, found.data_dir, found.default_llm) == (None, None, "offline")


@pytest.mark.parametrize("value", ["inf", "nan", "1e9", "-1"])
@pytest.mark.parametrize("name", [name for name, info in Settings.model_fields.items() if info.annotation is float])
def test_a_number_that_is_none_or_beyond_all_measure_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingInvalid, match=name.upper()):
        reading({name.upper(): value}, monkeypatch)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PORT", "abc", "PORT: 'abc' is no whole number; the default is 8000."),
        ("PORT", "70000", "PORT: '70000' is too large: it must be 65535 or less; the default is 8000."),
        ("MIGRATE_ON_START", "maybe", "MIGRATE_ON_START: 'maybe' is neither true nor false; the default is True."),
        ("LEASE_SECONDS", "soon", "LEASE_SECONDS: 'soon' is no number; the default is "),
        ("LOG_FORMAT", "xml", "LOG_FORMAT: 'xml' does not match ^(auto|json|console)$; the default is auto."),
    ],
)
def test_a_wrong_number_switch_or_choice_is_told_with_value_and_default(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingInvalid) as refused:
        reading({name: value}, monkeypatch)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "notaurl",
        "ftp://host/v1",
        "http://",
        "http://a b/v1",
        "http://host:port/v1",
        "http://user:secret@x y/",
        "http://[",
    ],
)
@pytest.mark.parametrize("name", ["DEFAULT_LLM_BASE_URL", "CONTEXT_SUMMARY_MODEL_BASE_URL", "EMBEDDING_BASE_URL"])
def test_what_is_no_address_of_a_server_is_refused_by_name_and_without_its_password(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingInvalid, match=f"{name}: must be an address such as http") as refused:
        reading({name: address, "CONTEXT_SUMMARY_MODEL": "openai:small"}, monkeypatch)

    assert "secret" not in refused.value.detail


@pytest.mark.parametrize("hours", ["1", "23"])
def test_a_time_in_which_a_request_may_still_be_sent_again_is_too_short_for_its_key(
    hours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        SettingInvalid, match=f"IDEMPOTENCY_KEYS_RETENTION_HOURS: {hours} is too short.*at least 24, or 0"
    ):
        reading({"IDEMPOTENCY_KEYS_RETENTION_HOURS": hours}, monkeypatch)


def test_keys_may_be_kept_for_ever_and_archived_sessions_are_where_nothing_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = reading({"IDEMPOTENCY_KEYS_RETENTION_HOURS": "0", "ARCHIVED_SESSIONS_RETENTION_DAYS": ""}, monkeypatch)

    assert (found.idempotency_keys_retention_hours, found.archived_sessions_retention_days) == (0, None)


@pytest.mark.parametrize("days", ["0", "-1", "3651", "never"])
def test_days_that_are_none_are_refused_by_name(days: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingInvalid, match="ARCHIVED_SESSIONS_RETENTION_DAYS"):
        reading({"ARCHIVED_SESSIONS_RETENTION_DAYS": days}, monkeypatch)


def test_an_address_without_the_model_it_is_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingInvalid, match="are invalid: CONTEXT_SUMMARY_MODEL_BASE_URL needs CONTEXT_SUMMARY"):
        reading({"CONTEXT_SUMMARY_MODEL_BASE_URL": "http://127.0.0.1:8/v1"}, monkeypatch)


def test_a_direct_address_without_the_pooler_s_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingInvalid, match="DATABASE_DIRECT_URL needs DATABASE_URL"):
        reading({"DATABASE_URL": "", "DATABASE_DIRECT_URL": "postgresql://h/d"}, monkeypatch)


def test_a_replica_without_a_primary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingInvalid, match="DATABASE_READ_URL needs DATABASE_URL"):
        reading({"DATABASE_URL": "", "DATABASE_READ_URL": "postgresql://h/d"}, monkeypatch)


def test_a_token_for_socket_mode_without_the_bot_s_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingInvalid, match="SLACK_APP_TOKEN needs SLACK_BOT_TOKEN"):
        reading({"SLACK_APP_TOKEN": "xapp-1", "SLACK_BOT_TOKEN": ""}, monkeypatch)
