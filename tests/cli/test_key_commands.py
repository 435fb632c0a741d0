"""`throughline keys …`, on a database of the test."""

import re
from collections.abc import Callable

import pytest
from click.testing import Result

from fakes.command_stage import FakeWorld

Throughline = Callable[..., Result]


@pytest.fixture
def world(database_url: str) -> FakeWorld:
    return FakeWorld(database_url=database_url)


def test_a_key_is_printed_once_and_alone_on_standard_output(throughline: Throughline) -> None:
    created = throughline("keys", "create", "--user", "ann", "--name", "laptop", "--scope", "read", "--scope", "act_as")
    listed = throughline("keys", "list")

    key = re.fullmatch(r"tl_([a-z0-9]{8})_(\S{43})\n", created.stdout)
    assert key is not None
    prefix, secret = key.groups()
    assert "not shown again" in created.stderr
    assert secret not in listed.stdout
    assert listed.stdout.splitlines()[1].split()[:5] == [prefix, "ann", "laptop", "act_as", "read"]


def test_only_the_first_key_comes_with_the_hint_that_keys_will_be_asked_for(throughline: Throughline) -> None:
    first = throughline("keys", "create")
    second = throughline("keys", "create")

    assert "requires a key after its next start" in first.stderr
    assert "next start" not in second.stderr


@pytest.mark.parametrize("written", ["{prefix}", "tl_{prefix}", "{key}"])
def test_a_key_is_revoked_by_its_prefix_however_it_is_written(throughline: Throughline, written: str) -> None:
    key = throughline("keys", "create").stdout.strip()
    prefix = key.split("_")[1]

    revoked = throughline("keys", "revoke", written.format(prefix=prefix, key=key))

    assert revoked.exit_code == 0
    assert f"key {prefix} is revoked; running services refuse it within 5 seconds" in revoked.stderr


def test_revoking_an_unknown_key_is_an_error_that_does_not_repeat_a_secret(throughline: Throughline) -> None:
    result = throughline("keys", "revoke", "tl_other_secret")

    assert result.exit_code == 1
    assert "'other'" in result.stderr
    assert "A prefix is the 8 characters after `tl_`, but this one has 5." in " ".join(result.stderr.split())
    assert "secret" not in result.stderr
