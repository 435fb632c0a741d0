"""The tools that agents may call. The names below are for those who write tools and hooks of their own."""

from throughline.domain.tool import ToolContext
from throughline.ports.hooks import Decision, PreCompact
from throughline.tools.tool import ToolFailed, not_repeatable

__all__ = ["Decision", "PreCompact", "ToolContext", "ToolFailed", "not_repeatable"]
