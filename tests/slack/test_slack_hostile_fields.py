"""Values that no field of Slack's has: each is refused or acknowledged, and none ends in an error inside."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest
from structlog.testing import capture_logs

from fakes.slack_double import BOT_TOKEN, SIGNING_SECRET, say, sign
from fakes.slack_double.payloads import Said, app_mention, deleted, edited, left, message, reaction
from fakes.slack_stage import IDENTITY, SlackStage, no_command
from throughline.domain.basic_types import JsonObject as Json
from throughline.slack.bolt import Listeners, make_bolt
from throughline.slack.config import SlackConfig

LONG = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(256)) * 6
"""Too much for an index of the database, which packs what repeats itself within some hundred characters."""

GENUINE: dict[str, Callable[[Said], Json]] = {
    "message": message,
    "mention": app_mention,
    "edit": lambda said: edited(said, "changed"),
    "deletion": deleted,
    "stop sign": lambda said: reaction("octagonal_sign", user=said.user, channel=said.channel, ts=said.ts),
    "leaving": lambda said: left(said.channel, user=said.user),
}
REFUSED = "`user` has more than 64 bytes, which no id of Slack's has"
Path = tuple[str | int, ...]


def fields_of(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield where each plain value stands."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields_of(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields_of(inner, (*path, number))
    else:
        yield path


def changed(payload: Mapping[str, object], path: Path, value: object) -> str:
    """Return the payload with `value` at `path`."""
    body: Any = copy.deepcopy(dict(payload))  # Any: JSON, walked along a path
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(body)


@pytest.mark.slow
@pytest.mark.parametrize("value", [LONG, "1" * 5_000, -1, {}], ids=["long", "digits", "number", "object"])
async def test_no_field_of_an_event_can_break_its_taking(door: SlackStage, value: object) -> None:
    cases = [(kind, path) for kind, make in GENUINE.items() for path in fields_of(make(say("hello")))]
    broken = []
    with capture_logs() as logged:
        for kind, path in cases:
            body = changed(GENUINE[kind](say("hello", thread_ts="1700000000.000100")), path, value)
            if (await door.sender.post(body, "application/json", {})).status not in {200, 400, 404}:
                broken.append((kind, path))

    assert broken == []
    assert [entry for entry in logged if entry["log_level"] == "error"] == []


async def test_an_id_that_no_one_could_have_is_refused_with_its_name_and_one_line(door: SlackStage) -> None:
    with capture_logs() as logged:
        answer = await door.sender.once(message(say("hello", user=LONG)))

    assert (answer.status, json.loads(answer.text)) == (400, {"error": REFUSED})
    assert [(entry["log_level"], entry["reason"]) for entry in logged] == [("warning", REFUSED)]


async def test_a_defect_behind_the_door_is_logged_as_an_error_with_where_it_is() -> None:
    async def broken(_body: object) -> None:
        raise LookupError("a text of somebody's")

    bolt = make_bolt(SlackConfig(BOT_TOKEN, SIGNING_SECRET), IDENTITY, Listeners(broken, no_command))
    with capture_logs() as logged:
        body = json.dumps(message(say("hello")))
        answer = await bolt.async_dispatch(
            AsyncBoltRequest(body=body, headers={name.lower(): [sent] for name, sent in sign(body).items()})
        )

    assert answer.status == 500
    [entry] = logged
    assert (entry["log_level"], entry["error"], "broken:" in entry["where"]) == ("error", "LookupError", True)
    assert "somebody" not in str(entry)
