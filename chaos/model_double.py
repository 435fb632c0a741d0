"""The model for the chaos scenarios, its own process: strict as the provider double, but answers by what it is shown.

A script would run out of step when a call is repeated after a crash; here the same prompt has the same answer.
Each call is written down when it ends: whose it was, from when to when, and what a summariser read.
"""

import argparse
import json
import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.calls import head_of
from chaos.messages import ANSWER_PIECES, TOOLS, answer_to, name_in, slow_seconds_in
from fakes.provider_double.chat_request import ChatRequest, check_request, check_window, parse_body
from fakes.provider_double.counting import texts_of
from fakes.provider_double.double import SUMMARISER_MARKER
from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.replies import refusal_reply, step_reply, summarise
from fakes.provider_double.script import ScriptedCall, ScriptStep
from fakes.provider_double.serving import Sending, bind, server_of
from throughline.context.summaries.summary_prompt import CONVERSATION_TAG
from throughline.context.view.placeholder_texts import undelimited

_SHOWN = re.compile(r"^\[#(\d+) (?:user|assistant|tool)[^\]\n]*\] (.*)", re.MULTILINE)


@dataclass(slots=True)
class CallLog:
    """Writes the calls down, one JSON object a line."""

    path: Path
    _number: int = 0
    _file: int = field(default=-1)

    def begin(self, message: str, kind: str) -> "OpenCall":
        """Note the beginning of a call, which is written down at its end."""
        self._number += 1
        return OpenCall(
            self, {"number": self._number, "message": message, "kind": kind, "began": time.time(), "shown": []}
        )

    def write(self, call: Json) -> None:
        """Add a line."""
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, json.dumps(call).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that is being answered."""

    log: CallLog
    told: Json

    def read(self, asked: ChatRequest) -> None:
        """Note that a summariser's answer went out whole: what it was shown is read."""
        texts = [text for message in asked.messages for text in texts_of(message)]
        lines = [line for text in texts for line in _SHOWN.findall(undelimited(CONVERSATION_TAG, text))]
        self.told["shown"] = [(int(position), head_of(said)) for position, said in lines]

    def end(self) -> None:
        """Write it down."""
        self.log.write({**self.told, "ended": time.time()})


def make_application(log: CallLog, summary_seconds: float = 0.0) -> Starlette:
    """Return the application; a summary takes `summary_seconds`."""

    async def chat_completions(request: Request) -> Sending:
        try:
            asked = check_request(parse_body(await request.body()))
            check_window(asked)
        except Refused as refused:
            return Sending(refusal_reply(refused), log.begin(refused.message, "refused").end)
        user = _last_user_text(asked)
        kind, step = _step(asked, user)
        if kind == "summary":
            step = replace(step, delay_seconds=summary_seconds / step.pieces)
        call = log.begin(str(name_in(user) or ""), kind)
        return Sending(
            step_reply(step, asked, 1),
            at_end=call.end,
            when_whole=lambda: call.read(asked) if kind == "summary" else None,
        )

    async def ready(request: Request) -> Response:
        del request
        return JSONResponse({})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/control/stats", ready),
        ]
    )


def _step(asked: ChatRequest, user: str) -> tuple[str, ScriptStep]:
    first = asked.messages[0]
    if first["role"] == "system" and str(first["content"]).startswith(SUMMARISER_MARKER):
        return "summary", ScriptStep(text=summarise(asked))
    if TOOLS in user and asked.messages[-1]["role"] == "user":
        return "calls", ScriptStep(calls=_calls(user))
    pause = slow_seconds_in(user) / ANSWER_PIECES
    return "answer", ScriptStep(text=answer_to(user), pieces=ANSWER_PIECES, delay_seconds=pause)


def _calls(user: str) -> tuple[ScriptedCall, ...]:
    name = name_in(user)
    told = json.dumps({"text": str(name)})
    number = 0 if name is None else name.number
    return (
        ScriptedCall(f"call_{number}_a", "calculator", json.dumps({"expression": f"{number}*2"})),
        ScriptedCall(f"call_{number}_b", "note", told),
        ScriptedCall(f"call_{number}_c", "note_once", told),
    )


def _last_user_text(asked: ChatRequest) -> str:
    last = next((message for message in reversed(asked.messages) if message["role"] == "user"), None)
    return " ".join(texts_of(last)) if last else ""


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="The model of the chaos scenarios.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--summary-seconds", type=float, default=0.0)
    options = parser.parse_args()
    with bind(options.port) as listener:
        server_of(make_application(CallLog(options.log), options.summary_seconds)).run(sockets=[listener])


if __name__ == "__main__":
    main()
