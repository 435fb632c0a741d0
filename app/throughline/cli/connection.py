"""Connection of a command to a running service, or to one opened in this process for the command's duration.

The commands get the service's location as a `ServiceTarget`, and run in an event loop of their own.
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import httpx

from throughline.cli.client import JSON_LINES, ServiceClient, UnexpectedReply
from throughline.cli.dependencies import CliDependencies, LocalOptions

# Limit on the size of one reply: `--url` may name any server, and an endless reply would fill the memory. Event streams
# have a limit of their own, on each event (`chat/answer_stream.py`).

MAX_REPLY_BYTES = 100_000_000
"""Largest reply in bytes. A page of history has at most 8 MB of text, and JSON may need six bytes for one."""

IDENTITY = {"Accept-Encoding": "identity"}
"""Header that asks for uncompressed replies: a few compressed bytes can expand to any size."""


async def bound_reply(response: httpx.Response) -> None:
    """Limit the body of `response`, except a stream, to MAX_REPLY_BYTES; used as a hook of httpx.

    Raises UnexpectedReply for a compressed body.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnexpectedReply(
            f"The response is compressed ({encoding[:40]}), although the request forbids it. Check the proxy "
            "behind --url."
        )
    is_stream = response.is_success and response.request.headers.get("accept") in {"text/event-stream", JSON_LINES}
    if not is_stream:
        assert isinstance(response.stream, httpx.AsyncByteStream), "an asynchronous client has such streams"
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx.AsyncByteStream):
    """Wrapper of a byte stream that raises UnexpectedReply beyond MAX_REPLY_BYTES."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                raise UnexpectedReply(
                    f"The response is larger than {MAX_REPLY_BYTES:,} bytes, the most that the service sends. "
                    "Check that --url is the address of a Throughline service."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


TIMEOUT = httpx.Timeout(60, connect=10)
Command = TypeVar("Command", bound=Callable[..., object])
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The service that a command uses: the one at `url`, or, if that is None, one opened in this process.

    `api_key` is sent to the service at `url`. `data_dir` and `dependencies` are for a service in this process.
    """

    dependencies: CliDependencies
    url: str | None
    api_key: str | None
    data_dir: Path | None

    @property
    def options(self) -> str:
        """The command-line options that lead to the same service again, for hints."""
        if self.url:
            return f" --url {self.url}"
        return f" --data-dir {self.data_dir}" if self.data_dir else ""


@asynccontextmanager
async def open_client(
    target: ServiceTarget, *, takes_turns: bool = False, user: str = ""
) -> AsyncIterator[ServiceClient]:
    """Yield a client of the service at `target`, which acts for `user`, or for the key's own user if that is ''.

    A service in this process answers messages if `takes_turns`.
    """
    headers = {"User-Agent": "throughline-cli", "X-Client": "cli", **IDENTITY}
    if user:
        headers["On-Behalf-Of"] = user
    if target.url is not None:
        if target.api_key:
            headers["Authorization"] = f"Bearer {target.api_key}"
        # The environment's proxy is used for a remote service, but not for one on this machine.
        remote = httpx.AsyncClient(
            base_url=target.url,
            headers=headers,
            timeout=TIMEOUT,
            trust_env=not _is_this_machine(target.url),
            event_hooks={"response": [bound_reply]},
        )
        async with remote as http:
            yield ServiceClient(http, place=target.url)
        return
    async with (
        target.dependencies.open_local_service(LocalOptions(target.data_dir, takes_turns=takes_turns)) as socket_path,
        httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket_path)),
            base_url="http://localhost",
            headers=headers,
            timeout=TIMEOUT,
        ) as http,
    ):
        yield ServiceClient(http, place="the service inside this command")


health_port_option = click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Port for health and metrics; 0 takes a free one.  [default: HEALTH_PORT, nowhere]",
)


def data_dir_option(command: Command) -> Command:
    """Add `--data-dir` to a command."""
    option = click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of the embedded database.  [default: setting DATA_DIR, the user's data folder]",
    )
    return option(command)


def target_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add `--url`, `--api-key` and `--data-dir` to a command, which gets them as one argument `target`."""

    @wraps(command)
    def with_target(url: str | None, api_key: str | None, data_dir: Path | None, **rest: object) -> object:
        dependencies = click.get_current_context().find_object(CliDependencies)
        assert dependencies is not None, "the command line is called with its parts"
        return command(target=ServiceTarget(dependencies, url, api_key, data_dir), **rest)

    decorated: Callable[..., object] = with_target
    for option in (
        data_dir_option,
        click.option(
            "--api-key",
            envvar="THROUGHLINE_API_KEY",
            show_envvar=True,
            callback=_check_key,
            help="Key for the service at --url.",
        ),
        click.option(
            "--url",
            callback=_check_url,
            help="Address of a running service; without it, the service runs in this process.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def asynchronous(command: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Turn a coroutine function into a command. Each call runs in an event loop of its own."""

    @wraps(command)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        asyncio.run(command(*args, **kwargs))

    return run


def _check_url(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise click.BadParameter(f"{value!r} is not an address such as http://127.0.0.1:8000.")
    return value.rstrip("/")


def _check_key(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (value.isascii() and value.isprintable() and " " not in value):
        raise click.BadParameter("A key is one word of ASCII characters, such as tl_….")
    return value or None


def _is_this_machine(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
