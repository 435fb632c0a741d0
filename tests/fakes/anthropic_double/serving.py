"""Runs a double on a free loopback port, in a thread of its own so that clients of any kind can call it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from fakes.anthropic_double.application import make_application
from fakes.anthropic_double.double import AnthropicDouble
from fakes.provider_double.serving import bind, serve_application


@contextmanager
def serve_anthropic(double: AnthropicDouble) -> Iterator[AnthropicDouble]:
    """Serve `double` inside the block; `double.url` says where."""
    with bind(0) as listener:
        double.url = root_url(listener)
        with serve_application(make_application(double), listener):
            yield double


def root_url(listener: socket.socket) -> str:
    """Return the address for Anthropic clients."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
