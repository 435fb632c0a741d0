"""Implementation of the `AgentGraphs` port; it imports LangChain's agents only in services that have such an agent."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from throughline.domain.agent_graph import GraphEnd, GraphStart
from throughline.domain.prompt import ToolSpec
from throughline.ports.agent_graphs import GraphHost

if TYPE_CHECKING:
    from throughline.agent_graphs.run_graph import LoadedGraphs


class ImportedGraphs:
    """The graphs that agent files name; each is imported and checked when it is first needed."""

    def __init__(self, specs: Callable[[Sequence[str]], Sequence[ToolSpec]]) -> None:
        """`specs` returns the specifications of tools by their names."""
        self._specs = specs
        self._graphs: LoadedGraphs | None = None

    def check(self, name: str, tools: Sequence[str]) -> None:
        self._loaded().load(name, tuple(tools))

    async def run(self, name: str, start: GraphStart, host: GraphHost) -> GraphEnd:
        return await self._loaded().run(name, start, host)

    def _loaded(self) -> "LoadedGraphs":
        if self._graphs is None:
            # the import takes a third of a second, also in each process that replaces another
            from throughline.agent_graphs.run_graph import LoadedGraphs  # noqa: PLC0415  # see above

            self._graphs = LoadedGraphs(self._specs)
        return self._graphs
