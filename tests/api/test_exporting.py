import json

from fakes.api_stage import open_session, set_stage
from fakes.conversations import open_conversation
from throughline.db.database import Database


async def test_an_export_holds_the_session_and_every_message_over_many_pages(database: Database) -> None:
    conversation = await open_conversation(database, "local", title="Long")
    await conversation.say(*(f"line {number}\u2028\n" for number in range(1, 451)))
    async with set_stage(database).client() as client:
        answer = await client.get(f"/v1/sessions/{conversation.session.id}/export")

    first, *rest = [json.loads(line) for line in answer.content.split(b"\n") if line]
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert (first["type"], first["title"], first["message_count"]) == ("session", "Long", 450)
    assert [(line["type"], line["position"]) for line in rest] == [("message", number) for number in range(1, 451)]
    assert rest[0]["content"] == "line 1\u2028\n"


async def test_an_empty_session_is_one_line(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)

        assert len((await client.get(f"{session}/export")).content.splitlines()) == 1
