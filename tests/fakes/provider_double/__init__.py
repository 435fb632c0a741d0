"""A strict stand-in for an OpenAI-compatible provider: a real HTTP server that refuses what the real one refuses.

It counts tokens its own way by model name, records every request, answers from a script and fails on command.
"""

from fakes.provider_double.double import ProviderDouble, RequestRecord, Verdict
from fakes.provider_double.script import SUMMARISER, Failure, ScriptedCall, ScriptStep
from fakes.provider_double.serving import serve_double

__all__ = [
    "SUMMARISER",
    "Failure",
    "ProviderDouble",
    "RequestRecord",
    "ScriptStep",
    "ScriptedCall",
    "Verdict",
    "serve_double",
]
