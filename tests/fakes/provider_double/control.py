"""Routes to script and question a double that runs as its own process."""

import json
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.models import find_model
from fakes.provider_double.records import Verdict
from fakes.provider_double.script import ANY_TURN, step_from_json


def control_routes(double: ProviderDouble) -> list[Route]:
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
        """`{model, tools, prompts: [[message, …], …]}`: the model's own count of each prompt, tools apart."""
        body = json.loads(await request.body())
        counting = find_model(body["model"]).counting
        tokens = [counting.in_messages(prompt) for prompt in body["prompts"]]
        return JSONResponse({"prompts": tokens, "tools": counting.in_tools(body.get("tools", []))})

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


def _by_verdict(double: ProviderDouble) -> Mapping[str, int]:
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for record in double.requests:
        counts[record.verdict.value] += 1
    return counts
