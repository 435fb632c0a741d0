"""The agents as LangGraph's assistants. An agent's name is its graph's id, and a UUID made of the name its own id."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from uuid import UUID, uuid5

from fastapi import Request, Response
from pydantic import Field, JsonValue

from throughline.agents.definition import AgentDefinition
from throughline.http.body import read_optional_body
from throughline.http.call import Call, Reader
from throughline.http.documents import described
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.langgraph_api.absent_routes import LANGGRAPH, PREFIX
from throughline.langgraph_api.request import Body, Names
from throughline.wire.json_shape import JsonDict

IDS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The namespace in which LangGraph's server makes the id of a graph's assistant."""

CREATED = "2026-01-01T00:00:00+00:00"
"""The time that all agents have as `created_at`, which the clients require. Agents have no such time."""

METADATA: JsonDict = {"created_by": "system"}
LLM_NODE, TOOL_NODE = "llm_node", "tool_node"
NODES = ("__start__", "process_message", "retrieve_context", "save_user_message", LLM_NODE, TOOL_NODE, "__end__")
CHOICES = (
    ("save_user_message", TOOL_NODE),
    (LLM_NODE, TOOL_NODE),
    (LLM_NODE, "__end__"),
    (TOOL_NODE, LLM_NODE),
    (TOOL_NODE, "__end__"),
)
"""The turn's graph, as `turn/graph.py` builds it."""

STATE: JsonDict = {
    "type": "object",
    "title": "State",
    "properties": {"messages": {"type": "array", "title": "Messages", "items": {"type": "object"}}},
}

router = PrefixRouter(prefix=f"{PREFIX}/assistants", tags=[LANGGRAPH])


@lru_cache
def assistant_id(agent: str) -> str:
    """Return the UUID of the agent with this name."""
    return str(uuid5(IDS, agent))


def find_agent(call: Call, name: str) -> AgentDefinition:
    """Return the agent with this name or UUID. Raises NotFound, which lists the known agents."""
    by_id = (agent for agent in call.services.agents.all() if assistant_id(agent.name) == name.lower())
    return next(by_id, None) or call.services.agents.get(name)


def default_agent(call: Call) -> str:
    """Return the agent of a thread that names none: `assistant`, or the first one by name."""
    names = [agent.name for agent in call.services.agents.all()]
    return "assistant" if "assistant" in names else names[0]


class CountAssistants(Body):
    """Filters of assistants."""

    metadata: dict[str, JsonValue] | None = None
    graph_id: str | None = None
    name: str | None = Field(None, description="part of the name")


class SearchAssistants(CountAssistants):
    """A page of the list of assistants, by name."""

    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)
    sort_by: str | None = None
    sort_order: str | None = None
    select: Names | None = None


@router.post("/search", openapi_extra=described(body=SearchAssistants, is_body_required=False))
async def search_assistants(request: Request, call: Reader) -> Response:
    """List the agents as assistants, by name."""
    body = await read_optional_body(request, SearchAssistants)
    page = _matching(call, body)[body.offset : body.offset + body.limit]
    return JsonResponse([pick(_assistant_json(agent), body.select) for agent in page])


@router.post("/count", openapi_extra=described(body=CountAssistants, is_body_required=False))
async def count_assistants(request: Request, call: Reader) -> Response:
    """Return the number of assistants."""
    return JsonResponse(len(_matching(call, await read_optional_body(request, CountAssistants))))


@router.get("/{assistant}")
async def get_assistant(assistant: str, call: Reader) -> Response:
    """Return an agent as an assistant."""
    return JsonResponse(_assistant_json(find_agent(call, assistant)))


@router.get("/{assistant}/schemas")
async def get_schemas(assistant: str, call: Reader) -> Response:
    """Return the schemas of input, output and state: each has the messages."""
    shapes: JsonDict = dict.fromkeys(("input_schema", "output_schema", "state_schema"), STATE)
    graph_id = find_agent(call, assistant).name
    return JsonResponse({"graph_id": graph_id, **shapes, "config_schema": None, "context_schema": None})


@router.get("/{assistant}/graph")
async def get_graph(assistant: str, call: Reader) -> Response:
    """Return the graph of a turn. All agents have the same; `xray` makes no difference."""
    find_agent(call, assistant)
    steps: list[JsonValue] = [{"source": source, "target": target} for source, target in pairwise(NODES[:5])]
    choices: list[JsonValue] = [{"source": source, "target": target, "conditional": True} for source, target in CHOICES]
    return JsonResponse({"nodes": [_node_json(name) for name in NODES], "edges": steps + choices})


@router.get("/{assistant}/subgraphs")
async def get_subgraphs(assistant: str, call: Reader) -> Response:
    """Return no subgraphs: the graph of a turn has none."""
    find_agent(call, assistant)
    return JsonResponse({})


@router.get("/{assistant}/subgraphs/{namespace}")
async def get_subgraphs_of(assistant: str, namespace: str, call: Reader) -> Response:
    """Return no subgraphs: the graph of a turn has none in any namespace."""
    del namespace
    return await get_subgraphs(assistant, call)


def pick(value: JsonDict, select: Sequence[str] | None) -> JsonDict:
    """Return the selected members of an object, all without a selection. `values.messages` selects `values`."""
    names = {name.partition(".")[0] for name in select or ()}
    return {name: one for name, one in value.items() if not names or name in names}


def _matching(call: Call, asked: CountAssistants) -> list[AgentDefinition]:
    def fits(agent: AgentDefinition) -> bool:
        has_name = asked.name is None or asked.name.lower() in agent.name.lower()
        return has_name and asked.graph_id in {None, agent.name} and (asked.metadata or {}).items() <= METADATA.items()

    return [agent for agent in call.services.agents.all() if fits(agent)]


def _assistant_json(agent: AgentDefinition) -> JsonDict:
    return {
        "assistant_id": assistant_id(agent.name),
        "graph_id": agent.name,
        "name": agent.name,
        "description": agent.description or None,
        "config": {},
        "context": {},
        "metadata": dict(METADATA),
        "version": 1,
        "created_at": CREATED,
        "updated_at": CREATED,
    }


def _node_json(name: str) -> JsonDict:
    is_end = name.startswith("__")
    return {"id": name, "type": "schema" if is_end else "runnable", "data": name if is_end else {"name": name}}
