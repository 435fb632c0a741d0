"""The double over HTTP: `/v1/messages`, its token count, and `/control/*` for programs that run it as a process.

Connections are closed after each answer: LangChain keeps one pool for all Anthropic models of a process, and a pool
must not hand a connection of one test's event loop to the next test's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from fakes.anthropic_double.double import AnthropicDouble
from fakes.provider_double.serving import Sending, address_of, bind, control_routes, serve_application


def make_application(double: AnthropicDouble) -> Starlette:
    """Return the application that serves `double`."""

    async def messages(request: Request) -> Sending:
        exchange = double.receive(await request.body(), request.headers)
        reply = replace(exchange.reply, headers=(*exchange.reply.headers, ("connection", "close")))
        return Sending(
            reply,
            at_end=lambda: double.leave(exchange.conversation),
            when_whole=lambda: double.sent_whole(exchange.number),
        )

    async def count_tokens(request: Request) -> Sending:
        return Sending(double.count_tokens(await request.body(), request.headers))

    return Starlette(
        routes=[
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
            *control_routes(double),
        ]
    )


@contextmanager
def serve_anthropic(double: AnthropicDouble) -> Iterator[AnthropicDouble]:
    """Serve `double` inside the block; `double.url` says where."""
    with bind(0) as listener:
        double.url = address_of(listener)
        with serve_application(make_application(double), listener):
            yield double
