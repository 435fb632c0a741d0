from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fakes.fake_dependencies import FakeWorld
from throughline.cli.dependencies import LocalOptions, SlackOptions, SlackUnlink

Throughline = Callable[..., Result]


def test_slack_alone_takes_part_and_hands_its_options_on(
    world: FakeWorld, throughline: Throughline, tmp_path: Path
) -> None:
    throughline("slack")
    throughline("slack", "--data-dir", str(tmp_path), "--no-worker")

    assert world.in_slack == [SlackOptions(), SlackOptions(tmp_path, no_worker=True)]


def test_the_manifest_is_printed_for_socket_mode_or_for_an_address(world: FakeWorld, throughline: Throughline) -> None:
    assert throughline("slack", "manifest").stdout == "manifest of Throughline at no address\n"
    named = throughline("slack", "manifest", "--name", "Bot", "--url", "https://bot.example.com")

    assert named.stdout == "manifest of Bot at https://bot.example.com\n"
    assert world.in_slack == []


def test_an_address_that_slack_cannot_reach_is_refused(throughline: Throughline) -> None:
    refused = throughline("slack", "manifest", "--url", "http://localhost:8000")

    assert refused.exit_code == 2
    assert "https://" in refused.stderr


def test_a_link_code_is_printed_as_it_is_typed(world: FakeWorld, throughline: Throughline, tmp_path: Path) -> None:
    linked = throughline("slack", "link", "--user", "anna", "--data-dir", str(tmp_path))

    assert linked.stdout == "/agent link code-of-anna\n"
    assert "30 minutes" in linked.stderr
    assert world.opened == [LocalOptions(tmp_path)]


def test_who_was_unlinked_is_printed_one_a_line(world: FakeWorld, throughline: Throughline, tmp_path: Path) -> None:
    ended = throughline("slack", "unlink", "--user", "anna", "--data-dir", str(tmp_path))
    throughline("slack", "unlink", "--slack-user", "U0ANNA001")
    throughline("slack", "unlink", "--slack-user", "T0DOUBLE1:U0ANNA001")

    assert ended.stdout == "T0DOUBLE1:U0ANNA001\nT0DOUBLE1:U0BERT001\n"
    assert world.opened[0] == LocalOptions(tmp_path)
    assert world.unlinked == [
        SlackUnlink("anna"),
        SlackUnlink(slack_user="U0ANNA001"),
        SlackUnlink(slack_user="U0ANNA001", team="T0DOUBLE1"),
    ]


@pytest.mark.parametrize(
    "options", [(), ("--user", "anna", "--slack-user", "U0ANNA001"), ("--slack-user", "T0DOUBLE1:")]
)
def test_either_a_user_or_a_slack_user_is_unlinked(
    world: FakeWorld, throughline: Throughline, options: tuple[str, ...]
) -> None:
    refused = throughline("slack", "unlink", *options)

    assert refused.exit_code == 2
    assert "--slack-user" in refused.stderr
    assert world.unlinked == []
