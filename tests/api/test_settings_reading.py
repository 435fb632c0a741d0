"""Reading the settings: what cannot be used is refused in words, and lists are taken as people write them."""

import re
from pathlib import Path

import pytest

from throughline.domain.errors import SettingInvalid
from throughline.domain.keys import TOKEN_PREFIX
from throughline.settings import read_settings


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("key", ["x", "k" * 23])
def test_a_short_bootstrap_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    with pytest.raises(SettingInvalid, match=r"BOOTSTRAP_API_KEY: .*24 characters") as refused:
        read_settings()

    assert "k" * 23 not in refused.value.detail


@pytest.mark.parametrize("key", [" " * 30, "é" * 30, "k" * 30 + "\n", "hidden word " * 3])
def test_a_bootstrap_key_that_no_client_could_send_is_refused_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    with pytest.raises(
        SettingInvalid, match="BOOTSTRAP_API_KEY: clients cannot send this key in a header: use ASCII letters"
    ) as refused:
        read_settings()

    assert "hidden" not in refused.value.detail


def test_a_bootstrap_key_that_looks_like_an_access_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", f"{TOKEN_PREFIX}{'k' * 24}")

    with pytest.raises(SettingInvalid, match="BOOTSTRAP_API_KEY: a key does not begin with tlt_"):
        read_settings()


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
        ("HTTPS://App.Example:443/", ("https://app.example",)),
        ("http://[::1]:80,capacitor://localhost", ("http://[::1]", "capacitor://localhost")),
        ("*", ("*",)),
    ],
)
def test_origins_are_taken_as_a_list_with_commas_or_as_json(
    written: str, origins: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    assert read_settings().cors_origins == origins


@pytest.mark.parametrize(
    "origin", ["nonsense", "http://x/path", "http://*.example", "http://u:p@x", "https://", "http://x:1:2", "http://é"]
)
def test_an_origin_that_no_browser_sends_is_refused_with_its_value(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORS_ORIGINS", f"https://app.example, {origin}")

    with pytest.raises(
        SettingInvalid, match=f"CORS_ORIGINS: {re.escape(repr(origin))} is not an origin: write only scheme, host"
    ):
        read_settings()


@pytest.mark.parametrize("written", ['["http://a"', "[1]", "[[]]"])
def test_origins_that_cannot_be_read_are_refused_by_name(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    with pytest.raises(SettingInvalid, match="CORS_ORIGINS"):
        read_settings()
