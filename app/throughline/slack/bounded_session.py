"""The HTTP session of all calls to Slack: one pool, a time limit, and a bound on what one response may have.

Slack's SDK reads every response whole; behind SLACK_API_URL, or a proxy, may stand a server that never ends one.
"""

import aiohttp

CALL_SECONDS = 20
MOST_BYTES = 32_000_000
"""Of one response: a page of 200 messages of 40,000 characters each, escaped, and their metadata."""


class BoundedResponse(aiohttp.ClientResponse):
    """A response of at most `MOST_BYTES`, counted as they are unpacked."""

    async def read(self) -> bytes:
        """Return the body. Raises ClientPayloadError where it is longer than the bound, and hangs up."""
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
    """Return a session with the bound on every response; whoever asks for it closes it."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_SECONDS), response_class=BoundedResponse)
