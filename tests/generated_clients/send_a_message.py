"""Sends a message with a client that openapi-python-client has made, and prints the answer."""

import json
import sys

import httpx
from throughline_api.api.messages import send_message
from throughline_api.api.runs import get_run
from throughline_api.api.sessions import create_session
from throughline_api.client import AuthenticatedClient
from throughline_api.models import CreateSession, MessageDeltaEvent, Problem, SendMessage, SessionOut, TurnOut


def send(client: AuthenticatedClient) -> dict[str, object]:
    session = create_session.sync(client=client, body=CreateSession(agent="assistant"))
    assert isinstance(session, SessionOut)

    body = SendMessage(content="Say hello.")
    answered = send_message.sync_detailed(session.id, client=client, body=body, idempotency_key="once")
    turn = answered.parsed
    assert isinstance(turn, TurnOut)
    assert turn.message is not None

    missing = get_run.sync(session.id, client=client)
    assert isinstance(missing, Problem)
    part = {"message_id": str(turn.message.id), "text": "Hello."}
    event = MessageDeltaEvent.from_dict({"id": "2", "event": "message.delta", "data": part})
    return {"answer": turn.message.content, "streamed": event.data.text, "problem": missing.type_}


if __name__ == "__main__":
    with AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=httpx.Timeout(None)) as opened:
        print(json.dumps(send(opened)))  # noqa: T201  # the test reads it
