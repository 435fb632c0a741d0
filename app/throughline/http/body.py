"""JSON request bodies: their limits in length, time and memory, and their validation.

A body must be UTF-8 JSON with finite numbers. Its texts are cleaned (NUL, lone surrogates) before it is validated
against a pydantic model.
"""

import asyncio
import email.message
import json
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar
from uuid import UUID

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from throughline.domain.basic_types import JsonValue, UserId
from throughline.domain.errors import PermanentError
from throughline.domain.message import clean_text
from throughline.execution.compute_threads import LimitReached, OwnerLimits, present_owner
from throughline.http.problem_documents import error_problem, field_errors
from throughline.http.route_errors import (
    BodyMemoryExhausted,
    BodyTooLarge,
    BodyTooSlow,
    FieldError,
    InvalidRequest,
    MalformedBody,
    UnsupportedMediaType,
)

# `BodyCap` limits one body. A budget, with a share for each owner, limits all bodies that a process holds together: a
# request takes its bytes before its body is read, so that a body once begun can be read completely.

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


Body = TypeVar("Body", bound=BaseModel)
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})
JSON_LINES = frozenset({f"application/{name}" for name in ("x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines")})
MAX_DEPTH = 64
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Strings and brackets of a JSON text, for measuring its nesting depth.

The quantifier is possessive and the closing quote optional, so that an unclosed string is not scanned again and again.
"""

_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


async def read_body(request: Request, model: type[Body]) -> Body:
    """Return the request's body as `model`.

    Raises UnsupportedMediaType, MalformedBody, InvalidRequest, and the errors of the body cap.
    """
    return validate(await read_json(request), model)


async def read_json(request: Request) -> JsonValue:
    """Return the request's body as parsed JSON, not validated.

    Raises UnsupportedMediaType, MalformedBody, InvalidRequest (nested too deeply), and the errors of the body cap.
    """
    _check_type(request)
    return parse_json(await read_bytes(request))


async def read_optional_body(request: Request, model: type[Body]) -> Body:
    """Return the request's body as `model`; a missing body counts as an empty object. Raises as `read_body` does."""
    body = await read_bytes(request)
    if not body:
        return validate({}, model)
    _check_type(request)
    return validate(parse_json(body), model)


async def read_bytes(request: Request) -> bytes:
    """Return the request's body unparsed.

    The request keeps no copy, because its response may be streamed for minutes.
    """
    return b"".join([piece async for piece in request.stream()])


def _check_type(request: Request) -> None:
    """Raise UnsupportedMediaType unless the body is declared as JSON in UTF-8.

    A body without a declared type counts as JSON.
    """
    declared = request.headers.get("content-type")
    if declared is None or declared == "application/json":
        return
    kind, charset = _read_type(declared)
    if (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))) and (
        charset in CHARSETS
    ):
        return
    raise UnsupportedMediaType("Send the body as `Content-Type: application/json` in UTF-8.")


def is_json_lines(request: Request) -> bool:
    """Return whether the request declares its body as JSON Lines in UTF-8."""
    kind, charset = _read_type(request.headers.get("content-type", "application/json"))
    return kind in JSON_LINES and charset in CHARSETS


def _read_type(declared: str) -> tuple[str, str]:
    """Return the media type and character set of a `Content-Type` header."""
    header = email.message.Message()
    header["content-type"] = declared
    return header.get_content_type(), header.get_content_charset("utf-8")


def parse_json(body: bytes) -> JsonValue:
    """Return the parsed JSON body with all its texts cleaned. Raises MalformedBody or InvalidRequest."""
    if not body:
        raise MalformedBody("The body is empty. Send a JSON object.")
    try:
        text = body.decode("utf-8")
        _check_depth(text)
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        return _clean(value) if "\\u" in text else value
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not valid UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise MalformedBody(f"The body is not valid JSON: {error.msg} at character {error.pos}.") from error
    except ValueError as error:  # an integer of thousands of digits
        raise MalformedBody("A number in the body has too many digits.") from error


def _check_depth(text: str) -> None:
    """Raise InvalidRequest if the body is nested more than MAX_DEPTH levels deep.

    The parser's own recursion limit is not relied on, because it depends on the depth of the call stack.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += _STEP.get(token.group(), 0)
        if depth > MAX_DEPTH:
            raise InvalidRequest((
                FieldError("", f"The body is nested more than {MAX_DEPTH} levels deep. Send fewer levels."),
            ))


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest((FieldError("", f"{name} is not a JSON number. Send a finite number or null."),))


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidRequest((FieldError("", "A number in the body is too large for a double. Send a smaller one."),))
    return number


def _clean(value: JsonValue) -> JsonValue:
    """Return `value` with NUL and lone surrogates replaced in all its texts.

    An object key that contains one is refused with InvalidRequest, because two keys could become the same.
    """
    match value:
        case str():
            return clean_text(value)
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {_clean_key(key): _clean(item) for key, item in value.items()}
        case _:
            return value


def _clean_key(key: str) -> str:
    if clean_text(key) != key:
        raise InvalidRequest((FieldError("", "A name in the body contains NUL or a lone surrogate. Remove it."),))
    return key


def validate(value: JsonValue, model: type[Body]) -> Body:
    """Return `value` as `model`. Raises InvalidRequest, which names each wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise InvalidRequest(field_errors(found)) from None
