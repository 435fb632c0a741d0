"""The tools that agents may call. The names below are for those who write tools and hooks of their own."""

from app.domain.tool import ToolContext
from app.ports.hooks import Decision, PreCompact
from app.tools.tool import ToolFailed, not_repeatable

__all__ = ["Decision", "PreCompact", "ToolContext", "ToolFailed", "not_repeatable"]
