"""Reading the settings: what cannot be used is refused in words, and lists are taken as people write them."""

from pathlib import Path

import pytest

from app.domain.errors import SettingInvalid
from app.settings import read_settings


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("key", ["x", "k" * 23])
def test_a_short_bootstrap_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    with pytest.raises(SettingInvalid, match=r"BOOTSTRAP_API_KEY: .*24 characters") as refused:
        read_settings()

    assert "k" * 23 not in refused.value.detail


@pytest.mark.parametrize("key", ["", "k" * 24])
def test_no_bootstrap_key_or_a_long_one_is_taken(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    assert read_settings().bootstrap_api_key == key


@pytest.mark.parametrize(
    ("written", "origins"),
    [
        ("", ()),
        ("[]", ()),
        ("http://a", ("http://a",)),
        ("http://a, https://b:8443,", ("http://a", "https://b:8443")),
        ('["http://a", "http://b"]', ("http://a", "http://b")),
    ],
)
def test_origins_are_taken_as_a_list_with_commas_or_as_json(
    written: str, origins: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    assert read_settings().cors_origins == origins


@pytest.mark.parametrize("written", ['["http://a"', "[1]", "[[]]"])
def test_origins_that_cannot_be_read_are_refused_by_name(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    with pytest.raises(SettingInvalid, match="CORS_ORIGINS"):
        read_settings()
