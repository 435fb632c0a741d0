"""Sessions for the tests of pages."""

import httpx

from fakes.api_stage import open_session


async def open_chat(client: httpx.AsyncClient) -> str:
    """Open a session and return its id."""
    return (await open_session(client)).rpartition("/")[2]
