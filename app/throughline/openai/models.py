"""The agents as models, as OpenAI's clients list them."""

from collections.abc import Iterable

from fastapi import Response

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import NotFound
from throughline.domain.message import clean_text
from throughline.http.call import Reader
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.openai.errors import OPENAI, OpenAIRoute

OWNER = "throughline"
CREATED = 1_767_225_600
"""Unix time that all agents have as `created`, which OpenAI's clients require: 2026-01-01. Agents have no such time."""

MAX_SHOWN = 100
router = PrefixRouter(prefix="/v1/models", route_class=OpenAIRoute, tags=[OPENAI])


class ModelNotFound(NotFound):
    """No agent has the name that the request gives as `model`."""

    code = "model_not_found"


@router.get("")
async def list_models(call: Reader) -> Response:
    """List the agents as models, by name."""
    agents = sorted(call.services.agents.all(), key=lambda agent: agent.name)
    return JsonResponse({"object": "list", "data": [_model_json(agent) for agent in agents]})


@router.get("/{model}")
async def get_model(model: str, call: Reader) -> Response:
    """Return an agent as a model."""
    return JsonResponse(_model_json(find_agent(call.services.agents.all(), model)))


def find_agent(agents: Iterable[AgentDefinition], name: str) -> AgentDefinition:
    """Return the agent that a request names as its model. Raises ModelNotFound, which names all agents."""
    known = {agent.name: agent for agent in agents}
    if name in known:
        return known[name]
    names = ", ".join(sorted(known))
    raise ModelNotFound(f"There is no model {clean_text(name)[:MAX_SHOWN]!r}. The models are the agents: {names}.")


def _model_json(agent: AgentDefinition) -> dict[str, JsonValue]:
    return {"id": agent.name, "object": "model", "created": CREATED, "owned_by": OWNER}
