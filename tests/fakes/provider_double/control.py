"""Routes to script and question a double that runs as its own process."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fakes.provider_double.json_types import Json
from fakes.provider_double.records import RequestRecord, Verdict
from fakes.provider_double.script import ANY_TURN, ScriptStep, step_from_json


class Controlled(Protocol):
    """What the routes need of a double."""

    @property
    def requests(self) -> Sequence[RequestRecord]:
        """All requests so far."""
        ...

    def script(self, *steps: ScriptStep, line: str = ANY_TURN, then_default: bool = False) -> None:
        """Append steps to a line."""
        ...

    def drop_line(self, line: str) -> None:
        """Forget a line's steps."""
        ...

    def complaints(self) -> list[str]:
        """What is wrong with the script."""
        ...

    def count(self, body: Json) -> Json:
        """Count prompts as the model named in the body does."""
        ...

    def reset(self) -> None:
        """Forget requests and script."""
        ...


def control_routes(double: Controlled) -> list[Route]:
    """Return the `/control/*` routes of `double`."""

    async def script(request: Request) -> Response:
        """`{steps, line?, then_default?, replace?}`: append steps to a line, or put them in place of what is left."""
        body = json.loads(await request.body())
        line = body.get("line", ANY_TURN)
        if body.get("replace"):
            double.drop_line(line)
        steps = [step_from_json(step) for step in body["steps"]]
        double.script(*steps, line=line, then_default=body.get("then_default", False))
        return JSONResponse({"complaints": double.complaints()})

    async def requests(request: Request) -> Response:
        """`?since=N`: the requests after number N, in order."""
        since = int(request.query_params.get("since", 0))
        return JSONResponse([record.as_json() for record in double.requests if record.number > since])

    async def stats(request: Request) -> Response:
        """How many requests there were, by verdict, and what is wrong with the script."""
        del request
        return JSONResponse({"verdicts": _by_verdict(double), "complaints": double.complaints()})

    async def count(request: Request) -> Response:
        """`{model, tools, prompts: […]}`: the model's own count of each prompt."""
        return JSONResponse(double.count(json.loads(await request.body())))

    async def reset(request: Request) -> Response:
        """Forget requests and script."""
        del request
        double.reset()
        return JSONResponse({})

    return [
        Route("/control/script", script, methods=["POST"]),
        Route("/control/requests", requests),
        Route("/control/stats", stats),
        Route("/control/count", count, methods=["POST"]),
        Route("/control/reset", reset, methods=["POST"]),
    ]


def _by_verdict(double: Controlled) -> Mapping[str, int]:
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for record in double.requests:
        counts[record.verdict.value] += 1
    return counts
