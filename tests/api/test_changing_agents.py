"""Another agent answers in a session: `PATCH` with its name."""

import httpx

from fakes.api_stage import open_session, set_stage
from throughline.db.database import Database


async def test_another_agent_answers_from_the_next_message_on(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        changed = await client.patch(session, json={"agent": "researcher"})
        refused = await client.patch(session, json={"agent": "nobody"})

        assert changed.json()["agent"] == "researcher"
        assert (await client.get(session)).json()["agent"] == "researcher"
        assert refused.status_code == httpx.codes.NOT_FOUND
        assert "nobody" in refused.json()["detail"]
