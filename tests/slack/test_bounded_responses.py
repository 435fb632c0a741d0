from itertools import repeat

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from fakes.manual_clock import ManualClock
from fakes.raw_http_server import JSON, Answer, serve_raw
from throughline.slack.open_slack import bounded_session
from throughline.slack.web_api import SlackUnsure, SlackWebApi


@pytest.mark.parametrize("status", [200, 500])
async def test_a_response_of_slack_without_an_end_is_given_up_and_the_next_one_read(status: int) -> None:
    endless = Answer(repeat(b"y" * 1_000_000), status=status, content_type=JSON)
    async with (
        serve_raw(endless, Answer(['{"ok": true, "user": {"id": "U1"}}'])) as server,
        bounded_session() as session,
    ):
        client = AsyncWebClient(token="xoxb-1", base_url=f"{server.url}/", session=session, retry_handlers=[])
        calls = SlackWebApi(client, ManualClock())
        with pytest.raises(SlackUnsure, match=r"users\.info: ClientPayloadError"):
            await calls.user_info("U1")

        user = await calls.user_info("U1")

    assert user == {"id": "U1"}
