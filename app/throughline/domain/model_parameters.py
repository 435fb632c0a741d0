"""Parameters that an agent sends with every call of its model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from throughline.domain.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """Parameters of a model call; what is not set is not sent, so that the provider's default holds.

    - `stop`: texts at which the answer ends. `seed`: asks for the same answer to the same prompt.
    - `reasoning_effort`: how much a reasoning model thinks; the names are the provider's.
    - `parallel_tool_calls`: whether one step may call several tools.
    - `include_thoughts`: asks Gemini for its thoughts as text.
    - `return_reasoning`: whether the steps of a run are sent back with their reasoning as text.
    - `headers`, `body`: further HTTP headers, and further members of the request's JSON body.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    include_thoughts: bool | None = None
    return_reasoning: bool | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject = field(default_factory=dict)

    def given(self) -> Iterator[tuple[str, object]]:
        """Yield the names and values of the parameters that are set."""
        for declared in fields(self):
            value = getattr(self, declared.name)
            if value is not None and value not in ((), {}):
                yield declared.name, value


NO_PARAMETERS = ModelParameters()


def strings_in(parameters: ModelParameters) -> Iterator[str]:
    """Yield the values of headers and all texts in the body: an operator may have put secrets there."""
    yield from parameters.headers.values()
    waiting: list[object] = [*parameters.body.values()]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += members.values()
            case _:
                pass
