"""Collection of all tools that agents may name: the service's own, and those imported by name."""

from collections.abc import Sequence

from throughline.domain.errors import SettingInvalid
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.execution.import_plugin import import_plugin
from throughline.tools.langchain_tool import langchain_tools, make_langchain_tools
from throughline.tools.make_function_tool import make_function_tool
from throughline.tools.tool import CallLimits, Tool, failed


class ToolBox:
    """Implementation of the `Tools` port: tools by name. Calls may run concurrently; no state of them is kept."""

    def __init__(self, tools: Sequence[Tool], limits: CallLimits, *, imported: Sequence[str] = ()) -> None:
        """Store `tools`, and import those that `imported` names (`module:attribute`). Raises SettingInvalid."""
        self._limits = limits
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._add(tool)
        self._imported: dict[str, tuple[str, ...]] = {}
        self.specs(imported)

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of the named tools; a `module:attribute` is imported when it is first named.

        A `module:attribute` that is a LangChain toolkit, or a list of LangChain tools, stands for all of its tools.

        Raises SettingInvalid for an unknown name, one that cannot be imported, and two tools of one name.
        """
        found = {tool.spec.name: tool.spec for name in names for tool in self._find(name)}
        return tuple(found.values())

    def is_repeatable(self, name: str) -> bool:
        """Return whether the tool may be called again if its first outcome is unknown (True for unknown tools)."""
        tool = self._tools.get(name)
        return tool is None or tool.is_repeatable

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call; every error becomes an outcome that the model can read."""
        tool = self._tools.get(call.name)
        if tool is None:
            return failed(f"There is no tool named {call.name[:80]!r}. Tools you can call: {', '.join(self._tools)}.")
        return await tool.call(call.arguments, context, self._limits)

    def _find(self, name: str) -> tuple[Tool, ...]:
        if ":" in name and name not in self._imported:
            tools = _make_tools(import_plugin(name, kind="tool"), origin=name)
            for tool in tools:
                self._add(tool)
            self._imported[name] = tuple(tool.spec.name for tool in tools)
        names = self._imported.get(name, (name,))
        if not self._tools.keys() >= set(names):
            raise SettingInvalid(
                f"There is no tool named {name!r}; allowed: {', '.join(self._tools)}, or module:attribute."
            )
        return tuple(self._tools[found] for found in names)

    def _add(self, tool: Tool) -> None:
        present = self._tools.get(tool.spec.name)
        if present is not None and present.source is not tool.source:
            raise SettingInvalid(
                f"tools {present.origin!r} and {tool.origin!r} would both be called {tool.spec.name!r}: rename one"
            )
        self._tools[tool.spec.name] = tool


def _make_tools(found: object, *, origin: str) -> tuple[Tool, ...]:
    """Return the tools made of an imported function, LangChain tool or toolkit. Raises SettingInvalid."""
    of_langchain = langchain_tools(found, origin=origin)
    if of_langchain is None:
        return (make_function_tool(found, origin=origin),)
    return make_langchain_tools(of_langchain, origin=origin)
