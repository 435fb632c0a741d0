"""The tools that agents may call. The names below are for those who write tools and hooks of their own."""

from app.tools.tool import ToolFailed, not_repeatable
from app.turn.ports import ToolContext
from app.turn.pre_compact import Decision, PreCompact

__all__ = ["Decision", "PreCompact", "ToolContext", "ToolFailed", "not_repeatable"]
