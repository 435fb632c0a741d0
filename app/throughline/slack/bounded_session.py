"""HTTP session for all calls to Slack: one connection pool, a time limit, and a size limit for each response.

Slack's SDK reads every response completely. A server behind SLACK_API_URL, or a proxy, might never end a response.
"""

import aiohttp

CALL_SECONDS = 20
MOST_BYTES = 32_000_000
"""Largest response in bytes: a page of 200 messages of 40,000 characters each, escaped, with their metadata."""


class BoundedResponse(aiohttp.ClientResponse):
    """HTTP response of at most `MOST_BYTES`, counted after decompression."""

    async def read(self) -> bytes:
        """Return the body. If it is too long, close the connection and raise ClientPayloadError."""
        if self._body is None:
            body = bytearray()
            async for piece in self.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    self.close()
                    raise aiohttp.ClientPayloadError(f"Slack sent more than {MOST_BYTES:,} bytes.")
            self._body = bytes(body)
        return await super().read()


def bounded_session() -> aiohttp.ClientSession:
    """Return a session that limits the size of every response. The caller closes the session."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS), response_class=BoundedResponse)
