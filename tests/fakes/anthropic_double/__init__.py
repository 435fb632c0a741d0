"""A strict stand-in for Anthropic's Messages API: a real HTTP server that refuses what the real one refuses.

It shares models, scripts, records and ways of counting with the OpenAI double, and keeps a prompt cache of its own.
"""

from fakes.anthropic_double.double import AnthropicDouble
from fakes.anthropic_double.serving import serve_anthropic

__all__ = ["AnthropicDouble", "serve_anthropic"]
