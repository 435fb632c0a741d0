"""HTTP client of the service: one method per request, typed results, and errors that users understand."""

import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import PermanentError, TemporaryError
from throughline.domain.message import Role
from throughline.domain.replica import ReplicaAge
from throughline.wire.context import PreviewOut, SessionContextOut
from throughline.wire.data_age import read_age
from throughline.wire.events import Accepted, RunForOperators, RunOut, RunPage
from throughline.wire.messages import (
    CitedMessageOut,
    HitOut,
    MessageOut,
    MessagePage,
    PinnedGroup,
    RedactedMessageOut,
    SearchOut,
)
from throughline.wire.service import AgentList, AgentOut, Problem, ServiceStatusOut, UsageReportOut
from throughline.wire.sessions import (
    CopiesOut,
    DeletedSessionOut,
    MemoryList,
    MemoryOut,
    MemoryPage,
    SessionOut,
    SessionPage,
    SummarizeOut,
    SummaryCostOut,
    SummaryList,
    SummaryVersionOut,
)


class ServiceUnreachable(TemporaryError):
    """Error for a connection to the service that failed, broke or timed out."""

    code = "service_unreachable"


class RequestRefused(PermanentError):
    """Error for a request that the service answered with an error; `status` is the HTTP status (4xx or 5xx)."""

    code = "request_refused"

    def __init__(self, detail: str, *, status: int) -> None:
        """Store the service's error text and the HTTP status."""
        super().__init__(detail)
        self.status = status


class TurnWaits(PermanentError):
    """Error for a turn that waits for something from outside and cannot be asked about here."""

    code = "turn_waits"


class UnexpectedReply(PermanentError):
    """Error for a reply that this service, in this version, would not send."""

    code = "unexpected_reply"


class ServerCheckFailed(PermanentError):
    """Error for an agent with a server of tools that cannot be used."""

    code = "server_check_failed"


class ModelCheckFailed(PermanentError):
    """Error for an agent whose model cannot be used, or refuses the tools that the agent has."""

    code = "model_check_failed"


def with_provider_message(text: str, said: str) -> str:
    """Return an error's text with what the model's provider said, if the service told it."""
    return f"{text.rstrip('.')}. The provider said: {said}" if said else text


class AnswerFailed(PermanentError):
    """Error for a turn that ended without an answer."""

    code = "answer_failed"


Reply = TypeVar("Reply")
Item = TypeVar("Item", covariant=True)  # noqa: PLC0105  # a page is read only
JSON_LINES = "application/x-ndjson"
MAX_LINE_BYTES = 100_000_000
Exported: TypeAlias = dict[str, object]
"""A session or message as the JSON object that the service sent, passed on unchanged to an export."""

BEFORE_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ADAPTERS: dict[type[object], TypeAdapter[Any]] = {}  # built once per type; Any, because the types differ


class ListPage(Protocol[Item]):
    """A page of a list. The last page has no cursor."""

    @property
    def data(self) -> Sequence[Item]:
        """Items of the page."""

    @property
    def next_cursor(self) -> str | None:
        """Cursor of the next page, None on the last one."""


def read_json(reply_type: type[Reply], text: str | bytes) -> Reply:
    """Return `text` parsed as a `reply_type`. Raises UnexpectedReply if it has another form."""
    if reply_type not in _ADAPTERS:
        _ADAPTERS[reply_type] = TypeAdapter(reply_type)
    try:
        read: Reply = _ADAPTERS[reply_type].validate_json(text)
    except ValidationError as error:
        raise _unexpected(reply_type, error) from None
    return read


def _unexpected(reply_type: type[object], error: ValidationError) -> UnexpectedReply:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole body"
    name = BEFORE_CAPITAL.sub(" ", reply_type.__name__.removesuffix("Out")).lower()
    return UnexpectedReply(
        f"The service's answer cannot be read as {name} "
        f"({where}: {first['msg']}). Check that the address is a Throughline service of the same version."
    )


# Requests to a service over HTTP: pages, event streams, and the errors of refusals and broken connections. They stand
# apart, because ServiceClient only names routes and shapes.

PAGE_SIZE = 100
STREAM_SILENCE_SECONDS = 30.0  # the service sends a heartbeat every 5 s

Query = Mapping[str, str | int]


class ServiceRequests:
    """Requests through one HTTP client. Error texts name the service by `place`."""

    def __init__(self, http: httpx.AsyncClient, *, place: str) -> None:
        """Send requests through `http`, which has the base URL and the key. Its opener closes it."""
        self._http = http
        self._place = place
        self.age: ReplicaAge | None = None
        """Age of the data of the last answer, None if it came from the primary."""

    def unreachable(self, error: httpx.HTTPError) -> ServiceUnreachable:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
            return ServiceUnreachable(
                f"Cannot connect to {self._place}. Start the service with `throughline serve`, or check --url."
            )
        if isinstance(error, httpx.TimeoutException):
            return ServiceUnreachable(f"{self._place} did not answer in time. Try again, or read the service's log.")
        return ServiceUnreachable(f"The connection to {self._place} broke. Try again, or read the service's log.")

    async def _up_to(
        self, limit: int, page_type: type[ListPage[Item]], path: str, query: Query, cursor: str = ""
    ) -> tuple[list[Item], str]:
        """Return up to `limit` items after the cursor, and the next cursor, '' at the end of the list."""
        found: list[Item] = []
        while len(found) < limit:
            size = min(PAGE_SIZE, limit - len(found))
            page = await self._page(page_type, path, {**query, "limit": size, "cursor": cursor})
            found.extend(page.data)
            cursor = page.next_cursor or ""
            if not cursor:
                break
        return found, cursor

    async def _page(self, page_type: type[Reply], path: str, query: Query) -> Reply:
        return read_json(page_type, await self._get(path, query))

    async def _get(self, path: str, query: Query | None = None) -> bytes:
        given = {name: value for name, value in (query or {}).items() if value}
        return (await self._send("GET", path, params=given)).content

    async def _post(self, path: str, body: JsonObject, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpx's own deadline
        extensions = {} if timeout is None else {"timeout": httpx.Timeout(timeout, connect=10).as_dict()}
        return (await self._send("POST", path, json=body, extensions=extensions)).content

    async def _send(self, method: str, path: str, **parts: object) -> httpx.Response:
        request = self._http.build_request(method, path, **parts)  # type: ignore[arg-type]  # httpx's own keywords
        try:
            response = await self._http.send(request)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        self._refuse(response)
        self.age = read_age(response.headers)
        return response

    def _stream_request(
        self, method: str, path: str, headers: Mapping[str, str], body: JsonObject | None = None
    ) -> httpx.Request:
        return self._http.build_request(
            method,
            path,
            json=body,
            headers={"Accept": "text/event-stream", **headers},
            timeout=httpx.Timeout(STREAM_SILENCE_SECONDS, connect=10),
        )

    @asynccontextmanager
    async def _open_stream(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        try:
            response = await self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        try:
            if not response.is_success:
                await response.aread()
            self._refuse(response)
            if not response.headers.get("content-type", "").startswith(request.headers["accept"]):
                raise UnexpectedReply(f"{self._place} did not answer with a stream. Is it a Throughline service?")
            self.age = read_age(response.headers)
            yield response
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        finally:
            await response.aclose()

    def _refuse(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        raise RequestRefused(self._sentence(response), status=response.status_code)

    def _sentence(self, response: httpx.Response) -> str:
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if not response.headers.get("content-type", "").startswith("application/problem+json"):
            return f"{self._place} answered with status {status}, but not in Throughline's format. Check --url."
        problem = read_json(Problem, response.content)
        text = problem.detail or problem.title or f"The service answered {status}."
        text = with_provider_message(text, problem.provider_message or "")
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return f"{text} Give a key with --api-key or THROUGHLINE_API_KEY."
        return text


SUMMARIZE_TIMEOUT_SECONDS = 600.0  # a long history is summarised in many calls
IMPORT_TIMEOUT_SECONDS = 600.0  # thousands of messages are counted and stored one by one


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Filter for listing sessions; empty strings do not filter. `id_prefix` has at least four digits of an id."""

    agent: str = ""
    q: str = ""
    external_id: str = ""
    metadata: str = ""
    id_prefix: str = ""
    include_archived: str = ""


class ServiceClient(ServiceRequests):
    """HTTP client of one service: a method for each of its routes that the command line uses."""

    async def agents(self) -> tuple[AgentOut, ...]:
        return tuple(read_json(AgentList, await self._get("/v1/agents")).data)

    async def create_session(self, agent: str, *, title: str) -> SessionOut:
        return read_json(SessionOut, await self._post("/v1/sessions", {"agent": agent, "title": title}))

    async def branch(self, session_id: str, at: int) -> SessionOut:
        """Create a session with copies of the session's messages up to position `at`."""
        return read_json(SessionOut, await self._post(f"/v1/sessions/{session_id}/branch", {"at": at}))

    async def session(self, session_id: str) -> SessionOut:
        return read_json(SessionOut, await self._get(f"/v1/sessions/{session_id}"))

    async def sessions(self, chosen: SessionFilter, *, limit: int, cursor: str = "") -> tuple[list[SessionOut], str]:
        """Return up to `limit` sessions, newest updated first, and the next cursor, '' at the end of the list."""
        return await self._up_to(limit, SessionPage, "/v1/sessions", asdict(chosen), cursor)

    async def delete_session(self, session_id: str) -> tuple[CopiesOut, ...]:
        """Delete a session with all its data. Return the sessions that keep copies of its messages."""
        response = await self._send("DELETE", f"/v1/sessions/{session_id}")
        return tuple(read_json(DeletedSessionOut, response.content).copies) if response.content else ()

    async def import_session(self, content: bytes, *, kind: str, replaced: Query | None = None) -> SessionOut:
        """Create a session from a conversation.

        `kind` is the conversation's media type. The values of `replaced` replace those in the conversation.
        """
        response = await self._send(
            "POST",
            "/v1/sessions/import",
            content=content,
            params=replaced,
            headers={"Content-Type": kind},
            timeout=httpx.Timeout(IMPORT_TIMEOUT_SECONDS, connect=10),
        )
        return read_json(SessionOut, response.content)

    async def export(self, session_id: str) -> AsyncGenerator[Exported]:
        """Yield a session and all its messages, oldest first, in the service's JSON form."""
        request = self._stream_request("GET", f"/v1/sessions/{session_id}/export", {"Accept": JSON_LINES})
        rest = b""
        async with self._open_stream(request) as response:
            async for piece in response.aiter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield read_json(dict[str, object], line)
                if len(rest) > MAX_LINE_BYTES:
                    raise UnexpectedReply(f"A line of the export is larger than {MAX_LINE_BYTES:,} bytes.")

    async def newest_messages(self, session_id: str, *, limit: int) -> list[CitedMessageOut]:
        """Return the newest `limit` messages, in ascending order."""
        path = f"/v1/sessions/{session_id}/messages"
        found, _ = await self._up_to(limit, MessagePage, path, {"order": "desc"})
        return found[::-1]

    async def messages_between(self, session_id: str, first: int, last: int) -> tuple[CitedMessageOut, ...]:
        """Return the messages from position `first` to `last`, at most one page of them."""
        query: Query = {"limit": PAGE_SIZE, "after": first - 1, "before": last + 1}
        return tuple((await self._page(MessagePage, f"/v1/sessions/{session_id}/messages", query)).data)

    async def last_of_user(self, session_id: str) -> CitedMessageOut | None:
        """Return the session's last message of the user, None without one."""
        cursor = ""
        while True:
            query: Query = {"limit": PAGE_SIZE, "order": "desc", "cursor": cursor}
            page = await self._page(MessagePage, f"/v1/sessions/{session_id}/messages", query)
            found = next((message for message in page.data if message.role == Role.USER), None)
            if found is not None or not page.next_cursor:
                return found
            cursor = page.next_cursor

    async def last_with_reasoning(self, session_id: str, through: int) -> CitedMessageOut | None:
        """Return the last message up to position `through` that has reasoning; None if none of its page has any."""
        query: Query = {"limit": PAGE_SIZE, "before": through + 1, "order": "desc", "include": "reasoning"}
        found = (await self._page(MessagePage, f"/v1/sessions/{session_id}/messages", query)).data
        return next((message for message in found if message.reasoning), None)

    async def search(self, session_id: str, words: str, *, limit: int) -> tuple[HitOut, ...]:
        """Return the best matching messages of one session, or of all sessions if `session_id` is empty."""
        path = f"/v1/sessions/{session_id}/search" if session_id else "/v1/search"
        return tuple((await self._page(SearchOut, path, {"q": words, "limit": limit})).data)

    async def context(self, session_id: str) -> SessionContextOut:
        """Return the context report of a session: how full its window is."""
        return read_json(SessionContextOut, await self._get(f"/v1/sessions/{session_id}/context"))

    async def summarize(self, session_id: str, request: JsonObject) -> SummarizeOut:
        """Write a summary of the session now. `request` has `instructions` and `from_position`, both optional."""
        path = f"/v1/sessions/{session_id}/summarize"
        return read_json(SummarizeOut, await self._post(path, request, timeout=SUMMARIZE_TIMEOUT_SECONDS))

    async def estimate_summary(self, session_id: str, request: JsonObject) -> SummaryCostOut:
        """Return what `summarize` would read and cost for this request."""
        return read_json(SummaryCostOut, await self._post(f"/v1/sessions/{session_id}/summarize/estimate", request))

    async def keep_in_summaries(self, session_id: str, instructions: str) -> SessionOut:
        """Set what every later summary of the session has to keep; '' removes these instructions."""
        change = {"summary_instructions": instructions}
        return read_json(SessionOut, (await self._send("PATCH", f"/v1/sessions/{session_id}", json=change)).content)

    async def change_agent(self, session_id: str, agent: str) -> SessionOut:
        """Let another agent answer in the session from the next message on."""
        reply = await self._send("PATCH", f"/v1/sessions/{session_id}", json={"agent": agent})
        return read_json(SessionOut, reply.content)

    async def preview(self, session_id: str, content: str) -> PreviewOut:
        """Return the plan for the model call that `content` would cause; '' stands for an empty message."""
        body: JsonObject = {"content": content} if content else {}
        return read_json(PreviewOut, await self._post(f"/v1/sessions/{session_id}/context/preview", body))

    async def summaries(self, session_id: str) -> tuple[SummaryVersionOut, ...]:
        """Return all versions of the session's summary, newest first. A prepared version comes before the others."""
        found, _ = await self._up_to(sys.maxsize, SummaryList, f"/v1/sessions/{session_id}/summaries", {})
        return tuple(found)

    async def summary_ready(self, session_id: str) -> int:
        """Return the last message that a prepared summary of the session covers; 0 if none is prepared."""
        newest = (await self._page(SummaryList, f"/v1/sessions/{session_id}/summaries", {"limit": 1})).data
        return newest[0].through_position if newest and newest[0].state == "prepared" else 0

    async def summary(self, session_id: str, version: str) -> SummaryVersionOut:
        """Return one version of the session's summary, by its number or its id."""
        path = f"/v1/sessions/{session_id}/summaries/{quote(version, safe='')}"
        return read_json(SummaryVersionOut, await self._get(path))

    async def restore(self, session_id: str, summary_id: str) -> SessionOut:
        """Make the version with this id or number the session's summary again; `0` takes the summary out of use."""
        return read_json(SessionOut, await self._post(f"/v1/sessions/{session_id}/summaries/{summary_id}/restore", {}))

    async def message_at(self, session_id: str, position: int) -> CitedMessageOut | None:
        """Return the message at `position`, None if there is none."""
        query: Query = {"limit": 1, "after": position - 1}
        found = (await self._page(MessagePage, f"/v1/sessions/{session_id}/messages", query)).data
        return found[0] if found and found[0].position == position else None

    async def redact(self, session_id: str, message_id: str) -> RedactedMessageOut:
        """Replace a message's text by a marker, and return the changed message."""
        return read_json(
            RedactedMessageOut, await self._post(f"/v1/sessions/{session_id}/messages/{message_id}/redact", {})
        )

    async def pin(self, session_id: str, message_id: str) -> tuple[MessageOut, ...]:
        """Pin a message and return its whole group."""
        response = await self._send("PUT", f"/v1/sessions/{session_id}/messages/{message_id}/pin")
        return tuple(read_json(PinnedGroup, response.content).data)

    async def unpin(self, session_id: str, message_id: str) -> None:
        """Remove the pin from a message and its group."""
        await self._send("DELETE", f"/v1/sessions/{session_id}/messages/{message_id}/pin")

    async def memories(self, *, limit: int, cursor: str = "") -> tuple[list[MemoryOut], str]:
        """Return up to `limit` memories, newest first, and the next cursor, '' at the end of the list."""
        return await self._up_to(limit, MemoryPage, "/v1/memories", {}, cursor)

    async def memory(self, memory_id: str) -> MemoryOut:
        return read_json(MemoryOut, await self._get(f"/v1/memories/{memory_id}"))

    async def add_memory(self, text: str) -> MemoryOut:
        return read_json(MemoryOut, await self._post("/v1/memories", {"text": text}))

    async def search_memories(self, words: str, *, limit: int) -> tuple[MemoryOut, ...]:
        return tuple(
            read_json(MemoryList, await self._post("/v1/memories/search", {"query": words, "limit": limit})).data
        )

    async def change_memory(self, memory_id: str, text: str) -> None:
        await self._send("PATCH", f"/v1/memories/{memory_id}", json={"text": text})

    async def delete_memory(self, memory_id: str) -> None:
        await self._send("DELETE", f"/v1/memories/{memory_id}")

    async def usage(self, group_by: str, *, days: int, all_users: bool) -> UsageReportOut:
        """Return what model calls used in the last `days` days. `group_by` names fields, separated by commas."""
        query: Query = {"group_by": group_by, "days": days, "all_users": str(all_users).lower()}
        return read_json(UsageReportOut, await self._get("/v1/usage", query))

    async def service_status(self) -> ServiceStatusOut:
        return read_json(ServiceStatusOut, await self._get("/v1/status"))

    async def get_run(self, run_id: str) -> RunForOperators:
        """Return a run; what its provider said is empty if the caller may not read it."""
        return read_json(RunForOperators, await self._get(f"/v1/runs/{run_id}"))

    async def waiting_run(self, session_id: str) -> RunOut | None:
        """Return the session's run that waits for something from outside, None if none does."""
        found = (await self._page(RunPage, f"/v1/sessions/{session_id}/runs", {"status": "waiting"})).data
        return found[0] if found else None

    async def resume_run(self, run_id: str, given: JsonObject) -> RunOut:
        """Give one call of a waiting run what it waits for, and return the run at once.

        `given` is the call's member of the request: its `call_id` with a `decision` or an `output`.
        """
        reply = await self._send(
            "POST", f"/v1/runs/{run_id}/resume", json={"calls": [given]}, headers={"Prefer": "respond-async"}
        )
        return read_json(Accepted, reply.content).run

    async def cancel_run(self, run_id: str) -> None:
        """Request that a run is cancelled."""
        await self._send("POST", f"/v1/runs/{run_id}/cancel")

    @asynccontextmanager
    async def post_message(
        self, session_id: str, content: str, *, key: str, model: str = ""
    ) -> AsyncIterator[httpx.Response]:
        """Send a message and open the stream of its events. A repeated `key` joins the same run.

        `model` is the model to answer it, '' for the agent's own.
        """
        headers = {"Idempotency-Key": key}
        body: JsonObject = {"content": content} | ({"overrides": {"model": model}} if model else {})
        request = self._stream_request("POST", f"/v1/sessions/{session_id}/messages", headers=headers, body=body)
        async with self._open_stream(request) as response:
            yield response

    @asynccontextmanager
    async def follow_run(self, run_id: str, *, last_event_id: str) -> AsyncIterator[httpx.Response]:
        """Open the stream of a run's events after `last_event_id`, from the first event if that is ''."""
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        async with self._open_stream(self._stream_request("GET", f"/v1/runs/{run_id}/events", headers)) as response:
            yield response
