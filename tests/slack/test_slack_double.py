"""The double is held to what Slack's pages say by Slack's own client and verifier."""

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from fakes.manual_clock import ManualClock
from fakes.slack_double import BOT_TOKEN, BOT_USER, SIGNING_SECRET, Failure, Limit, SlackDouble, Workspace, serve_slack
from fakes.slack_double.sender import sign


def client_of(slack: SlackDouble, token: str = BOT_TOKEN) -> AsyncWebClient:
    return AsyncWebClient(token=token, base_url=slack.url, retry_handlers=[])


async def error_of(call: object) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call  # type: ignore[misc]  # a coroutine of the client, whose types say less
    return str(caught.value.response["error"])


async def test_the_client_learns_who_it_is_and_which_scopes_it_has(slack: SlackDouble) -> None:
    answer = await client_of(slack).auth_test()

    assert answer["user_id"] == BOT_USER
    assert "chat:write" in answer.headers["X-OAuth-Scopes"]


async def test_a_wrong_token_and_a_missing_scope_are_refused(slack: SlackDouble) -> None:
    assert await error_of(client_of(slack, "xoxb-other").auth_test()) == "invalid_auth"
    slack.workspace.scopes = ("commands",)
    assert await error_of(client_of(slack).chat_postMessage(channel="C1", text="hi")) == "missing_scope"


async def test_a_stream_takes_text_until_it_is_stopped(slack: SlackDouble) -> None:
    client = client_of(slack)
    ts = (await client.chat_startStream(channel="D1", thread_ts="1.1"))["ts"]
    await client.chat_appendStream(channel="D1", ts=ts, markdown_text="Hello ")
    assert await error_of(client.chat_update(channel="D1", ts=ts, text="no")) == "streaming_state_conflict"
    await client.chat_stopStream(channel="D1", ts=ts, markdown_text="you.")

    assert slack.workspace.posted[0].text == "Hello you."
    assert (
        await error_of(client.chat_appendStream(channel="D1", ts=ts, markdown_text="more"))
        == "message_not_in_streaming_state"
    )


async def test_a_stream_expires_and_can_then_be_updated() -> None:
    clock = ManualClock()
    async with serve_slack(SlackDouble(Workspace(now=clock.monotonic))) as slack:
        client = client_of(slack)
        ts = (await client.chat_startStream(channel="D1", thread_ts="1.1", markdown_text="Half"))["ts"]
        clock.advance(301)

        assert (
            await error_of(client.chat_appendStream(channel="D1", ts=ts, markdown_text="x"))
            == "message_not_in_streaming_state"
        )
        await client.chat_update(channel="D1", ts=ts, markdown_text="Whole")
        assert slack.workspace.posted[0].text == "Whole"


async def test_streams_into_channels_name_their_reader(slack: SlackDouble) -> None:
    started = client_of(slack).chat_startStream(channel="C1", thread_ts="1.1")

    assert await error_of(started) == "missing_recipient_team_id"


async def test_long_texts_and_two_texts_are_refused(slack: SlackDouble) -> None:
    client = client_of(slack)
    ts = (await client.chat_postMessage(channel="C1", markdown_text="short"))["ts"]

    assert await error_of(client.chat_postMessage(channel="C1", markdown_text="x" * 12_001)) == "msg_too_long"
    both = client.chat_update(channel="C1", ts=ts, text="a", markdown_text="b")
    assert await error_of(both) == "markdown_text_conflict"


async def test_texts_that_show_nothing_are_refused(slack: SlackDouble) -> None:
    client = client_of(slack)
    ts = (await client.chat_startStream(channel="D1", thread_ts="1.1"))["ts"]

    blank = client.api_call("chat.postMessage", json={"channel": "C1", "markdown_text": "\n\n"})
    assert await error_of(blank) == "no_text"
    assert await error_of(client.chat_startStream(channel="D1", thread_ts="1.1", markdown_text="\n")) == "no_text"
    assert await error_of(client.chat_appendStream(channel="D1", ts=ts, markdown_text=" \n")) == "no_text"


async def test_rate_limits_answer_429_with_the_time_to_wait(slack: SlackDouble) -> None:
    slack.rules.limits["chat.postMessage"] = Limit(1, 60, retry_after=7)
    client = client_of(slack)
    await client.chat_postMessage(channel="C1", text="one")

    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel="C1", text="two")

    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "7"


async def test_an_answer_can_be_lost_after_the_act(slack: SlackDouble) -> None:
    slack.rules.fail("chat.postMessage", Failure(drops=True, acts=True))

    with pytest.raises(Exception, match=r"disconnected|reset|closed"):
        await client_of(slack).chat_postMessage(channel="C1", text="posted")

    assert [message.text for message in slack.workspace.posted] == ["posted"]


def test_signatures_are_those_that_the_sdk_accepts() -> None:
    headers = sign("{}")

    assert SignatureVerifier(SIGNING_SECRET).is_valid_request("{}", headers)
    assert not SignatureVerifier(SIGNING_SECRET).is_valid_request("{}", sign("{}", at=1.0))
