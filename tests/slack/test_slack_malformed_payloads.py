"""What is signed by Slack's secret and yet not what Slack sends is refused with a sentence, and nothing is stored."""

import json

import pytest

from fakes.slack_double import TEAM, say, sign
from fakes.slack_double.payloads import message
from fakes.slack_stage import SlackStage

GENUINE = message(say("hello"))
EVENT = GENUINE["event"]
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def changed(**fields: object) -> str:
    return json.dumps(GENUINE | fields)


def changed_event(**fields: object) -> str:
    assert isinstance(EVENT, dict)
    return changed(event=EVENT | fields)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        *((body, JSON) for body in ("", "[]", "null", '"x"', "7", "{", "[" * 5_000, '{"a":' * 5_000)),
        ('{"a":' * 100 + "1" + "}" * 100, JSON),
        *((body, JSON) for body in (changed(event=None), changed(event=[]), changed(event="x"), changed(event={}))),
        (changed(event={"type": 3}), JSON),
        (changed(event_id=None), JSON),
        (changed(event_id="Ev\0"), JSON),
        (changed(team_id=[TEAM]), JSON),
        (changed(authorizations=[]), JSON),
        (changed(authorizations=["x"]), JSON),
        (changed(authorizations={}), JSON),
        (changed_event(channel="C\0"), JSON),
        (changed_event(ts="1\0"), JSON),
        (changed_event(user="U\ud800"), JSON),
        (changed_event(user=5), JSON),
        *((f"payload={payload}", FORM) for payload in ("%7B", "", "null", "%5B%5D", "x")),
        (f"command=%2Fagent&text=help&team_id={TEAM}&user_id=U%00", FORM),
    ],
)
async def test_a_signed_body_that_is_malformed_is_refused_with_a_sentence(
    door: SlackStage, body: str, content_type: str
) -> None:
    headers = sign(body) | {"Content-Type": content_type}

    answer = await door.client.post("/slack/events", content=body, headers=headers)

    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert await door.rows("select 1 from slack_events union all select 1 from users") == []


async def test_a_text_with_nul_is_taken(door: SlackStage) -> None:
    answered = await door.sender.once(message(say("one\0two")))

    assert answered.status == 200
    assert await door.run_texts() == ["one\N{REPLACEMENT CHARACTER}two"]
