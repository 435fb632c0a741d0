"""Runs a double on a free loopback port, in a thread of its own so that clients of any kind can call it."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from fakes.provider_double.application import make_application
from fakes.provider_double.double import ProviderDouble

BACKLOG = 512


@contextmanager
def serve_double(double: ProviderDouble) -> Iterator[ProviderDouble]:
    """Serve `double` inside the block; `double.url` says where."""
    with bind(0) as listener:
        double.url = base_url(listener)
        with serve_application(make_application(double), listener):
            yield double


@contextmanager
def serve_application(application: Starlette, listener: socket.socket) -> Iterator[None]:
    """Serve `application` on `listener` inside the block, in a thread of its own."""
    server = server_of(application)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="provider-double")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def bind(port: int) -> socket.socket:
    """Return a listening loopback socket; connections wait in it until the server runs."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def base_url(listener: socket.socket) -> str:
    """Return the address for OpenAI clients."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def make_server(double: ProviderDouble) -> uvicorn.Server:
    """Return the server of `double`, not running."""
    return server_of(make_application(double))


def server_of(application: Starlette) -> uvicorn.Server:
    """Return a server, not running. It says nothing: dropped connections are what it is for."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
