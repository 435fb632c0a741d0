"""ASGI middleware that limits request bodies before they are parsed.

Each body is limited in length and time; all bodies together are limited by a budget of bytes.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from throughline.domain.basic_types import UserId
from throughline.domain.errors import PermanentError
from throughline.execution.compute_threads import LimitReached, OwnerLimits, present_owner
from throughline.http.problem_documents import error_problem
from throughline.http.route_errors import BodyMemoryExhausted, BodyTooLarge, BodyTooSlow, UnsupportedMediaType

# Budget of bytes for the request bodies that a process holds at once, with a share for each owner.
#
# `http/body_cap.py` limits one body; this budget limits all bodies together. A request takes its bytes before its
# body is read, so that every body whose reading has begun can be read completely.

UNCOUNTED_BYTES = 65_536
"""Largest body in bytes that the budget does not count. The buffers of a connection hold as much in any case."""

NOBODY = UserId(UUID(int=0))
"""Owner of the bodies that are read before their sender is known: Slack's requests, which are signed as a whole."""

RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    owner_id: UserId
    size: int
    admitted: asyncio.Future[None]


class BodyMemory:
    """Budget of bytes for request bodies.

    A request takes bytes before its body is read, and gives them back once the body was read or the request ended.
    """

    def __init__(self, total_bytes: int, largest_body_bytes: int) -> None:
        """Limit all bodies to `total_bytes`, and each owner to half of that or the largest body, whichever is more."""
        self._limits = OwnerLimits(total_bytes, max(total_bytes // 2, largest_body_bytes))
        self._waiting: deque[_Waiting] = deque()

    async def take(self, owner_id: UserId | None, size: int, timeout_seconds: float) -> None:
        """Wait for `size` free bytes and take them. Raises BodyMemoryExhausted after `timeout_seconds`."""
        waiting = _Waiting(owner_id or NOBODY, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._admit()
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiting.admitted
        except TimeoutError:
            self._leave(waiting)
            raise BodyMemoryExhausted(
                "Large requests of yours, or of all users, use the bytes that MAX_HELD_BODY_BYTES allows: "
                f"{size} bytes did not become free within {timeout_seconds:g} seconds. Try again later.",
                delay_seconds=RETRY_SECONDS,
            ) from None
        except asyncio.CancelledError:
            self._leave(waiting)
            raise

    def give_back(self, owner_id: UserId | None, size: int) -> None:
        """Give `size` bytes of the owner back and admit waiting requests."""
        self._limits.give_back(owner_id or NOBODY, size)
        self._admit()

    def _leave(self, waiting: _Waiting) -> None:
        """Withdraw a waiting request, or give its bytes back if it was admitted at the same moment."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._admit()
        else:
            self.give_back(waiting.owner_id, waiting.size)

    def _admit(self) -> None:
        """Admit waiting requests in order of arrival.

        A request that waits for its owner's share does not block requests of other owners.
        """
        for waiting in tuple(self._waiting):
            taken = self._limits.take(waiting.owner_id, waiting.size)
            if taken is LimitReached.BY_ALL:
                return
            if taken is None:
                self._waiting.remove(waiting)
                if not waiting.admitted.done():
                    waiting.admitted.set_result(None)


class BodyReservation:
    """The bytes of the budget that one request holds.

    A body up to UNCOUNTED_BYTES holds none. A larger body holds its declared length, or its cap if no length is
    declared.
    """

    def __init__(self, budget: BodyMemory, size: int, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._budget = budget
        self._size = size if size > UNCOUNTED_BYTES else 0
        self._owner_id: UserId | None = None
        self.is_held = False

    async def take(self) -> None:
        """Take the request's bytes from the budget, in the name of the admitted owner. Raises BodyMemoryExhausted."""
        if self._size:
            self._owner_id = present_owner()
            await self._budget.take(self._owner_id, self._size, self.timeout_seconds)
            self.is_held = True

    def release(self) -> None:
        """Give the bytes back, if any are held. Called when the body has been read or its request has ended."""
        if self.is_held:
            self.is_held = False
            self._budget.give_back(self._owner_id, self._size)


@dataclass(frozen=True, slots=True)
class Cap:
    """Largest size of a body, and the name of the setting that defines it.

    `is_read_long` marks a route that works on the body until it answers, so that the body's bytes stay taken until
    then.
    """

    max_bytes: int
    setting: str
    is_read_long: bool = False


class BodyCap:
    """Middleware that refuses bodies that are too large, compressed, or slower than `timeout_seconds`.

    Bytes beyond the cap are not kept. The server discards what a client still sends after the answer.
    """

    def __init__(
        self, app: ASGIApp, *, cap: Cap, own_caps: Mapping[str, Cap], total_bytes: int, timeout_seconds: float
    ) -> None:
        """Wrap `app`. `own_caps` maps paths to caps that replace `cap`; `total_bytes` is the budget for all bodies."""
        self._app = app
        self._cap = cap
        self._own_caps = own_caps
        self._timeout_seconds = timeout_seconds
        self._budget = BodyMemory(total_bytes, max(each.max_bytes for each in (cap, *own_caps.values())))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request if its headers show a body that is compressed or too large, else pass it on.

        The body of a request that is passed on is counted as it arrives.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cap = self._own_caps.get(scope["path"], self._cap)
        headers = Headers(scope=scope)
        refusal = _refuse_by_headers(headers, cap)
        if refusal is not None:
            await error_problem(refusal)(scope, receive, send)
            return
        size = _declared_bytes(headers)
        held = BodyReservation(self._budget, cap.max_bytes if size is None else size, self._timeout_seconds)
        body = _Body(receive, cap, held, is_declared=size is not None)
        try:
            await self._app(scope, body.receive, send)
        finally:
            held.release()


def _declared_bytes(headers: Headers) -> int | None:
    """Return the declared length of the body, None if a body of unknown length follows.

    A request with neither `Content-Length` nor `Transfer-Encoding` has no body: its length is 0.
    """
    if "content-length" in headers:
        return int(headers["content-length"])
    return None if "transfer-encoding" in headers else 0


def _refuse_by_headers(headers: Headers, cap: Cap) -> PermanentError | None:
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() not in {"", "identity"}:
        return UnsupportedMediaType("Compressed bodies are not accepted. Send the JSON uncompressed.")
    length = headers.get("content-length", "0").strip().lstrip("0") or "0"
    if length.isdecimal() and len(length) <= len(str(cap.max_bytes)) and int(length) <= cap.max_bytes:
        return None
    return too_large(cap)


class _Body:
    """Receiver of one request's body that takes bytes of the budget and enforces the cap and the time limit."""

    def __init__(self, receive: Receive, cap: Cap, held: BodyReservation, *, is_declared: bool) -> None:
        self._held = held
        self._is_declared = is_declared
        self._receive = receive
        self._cap = cap
        self._seen = 0
        self._deadline: float | None = None
        self._is_complete = False

    async def receive(self) -> Message:
        """Return the next ASGI message of the request.

        Raises BodyTooLarge, BodyTooSlow and BodyMemoryExhausted, which the error handlers turn into responses.
        """
        if self._is_complete:
            return await self._receive()
        message = await self._in_time()
        self._seen += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._seen > self._cap.max_bytes:
            raise too_large(self._cap)
        if self._is_complete and not self._cap.is_read_long:
            self._held.release()
        return message

    async def _in_time(self) -> Message:
        seconds = self._held.timeout_seconds
        is_first = self._deadline is None
        if (is_first and self._is_declared) or (self._seen > UNCOUNTED_BYTES and not self._held.is_held):
            await self._held.take()
            self._deadline = None
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            raise BodyTooSlow(f"The body did not arrive within {seconds:g} seconds. Send it again.") from None


def too_large(cap: Cap) -> BodyTooLarge:
    """Return the error for a body larger than `cap`; its text names the limit and its setting."""
    return BodyTooLarge(
        f"The body is larger than {cap.max_bytes} bytes, the most that this route accepts ({cap.setting})."
    )
