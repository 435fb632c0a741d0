"""A request of an MCP client: its message and its caller, and how its parameters are read."""

from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from throughline.domain.keys import Scope
from throughline.http.body import validate
from throughline.http.call import Call, admit_as
from throughline.http.route_errors import InvalidRequest
from throughline.mcp.protocol import INVALID_PARAMS, ProtocolError, RpcMessage
from throughline.wire.json_shape import JsonDict

Parameters = TypeVar("Parameters", bound=BaseModel)
NO_META = ConfigDict(extra="ignore", frozen=True)
"""For parameters of methods, beside which `_meta` stands."""

RUN = "/v1/runs/{run_id}"
SESSION = "/v1/sessions/{session_id}"


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request: the message, the admitted caller, and the HTTP request that brought it."""

    message: RpcMessage
    call: Call
    request: Request

    async def reach(self, scope: Scope, method: str, path: str, **ids: str) -> Call:
        """Return the call with the rights that this route of the REST interface needs. Raises NotAllowed, NotFound."""
        return await admit_as(self.request, self.call, scope, (method, path), ids)

    async def reach_run(self, run_id: str) -> Call:
        """Return the call as one that reads the run."""
        return await self.reach(Scope.READ, "GET", RUN, run_id=run_id)

    async def reach_session(self, session_id: str, part: str = "") -> Call:
        """Return the call as one that reads this part of the session."""
        return await self.reach(Scope.READ, "GET", f"{SESSION}{part}", session_id=session_id)

    def read(self, model: type[Parameters]) -> Parameters:
        """Return the parameters of the method. Raises ProtocolError, which names the wrong ones."""
        try:
            return validate(self.message.params, model)
        except InvalidRequest as error:
            raise ProtocolError(INVALID_PARAMS, explain(error)) from error


def explain(error: InvalidRequest) -> str:
    """Return one line that names each wrong value."""
    return " ".join(f"{one.field}: {one.detail}" if one.field else one.detail for one in error.errors)


def schema_of(model: type[BaseModel], *, is_output: bool = False) -> JsonDict:
    """Return the JSON schema of a model, without the titles that repeat the names of fields and the class's words."""
    schema: JsonDict = model.model_json_schema(mode="serialization" if is_output else "validation")
    schema.pop("description", None)
    _drop_titles(schema)
    return schema


def _drop_titles(part: object) -> None:
    if isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        for value in part.values():
            _drop_titles(value)
    elif isinstance(part, list):
        for value in part:
            _drop_titles(value)
