"""Tools that agents may call. The names below are the interface for authors of tools and hooks."""

from throughline.domain.tool import ToolContext
from throughline.ports.hooks import Decision, PreCompact
from throughline.tools.make_function_tool import ToolFailed, not_repeatable

__all__ = ["Decision", "PreCompact", "ToolContext", "ToolFailed", "not_repeatable"]
