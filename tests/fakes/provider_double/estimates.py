"""Plays a conversation and holds our estimate of each prompt against the double's count, learning in between."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fakes.provider_double.counting import COUNTINGS
from fakes.provider_double.json_types import Json
from throughline.context.calibration import Calibration, factor, learn, scale
from throughline.context.measure import count_prompt, count_tool_specs
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.llm.counters import make_counter
from throughline.llm.translate_messages import to_tools

SYSTEM = "You are a helpful assistant. Answer briefly, and say where you looked things up."
TOOLS = tuple(
    ToolSpec(
        name,
        f"Use {name} to find what was said or stored before. Give a query of a few words.",
        {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}},
    )
    for name in ("search_history", "read_history", "find_documents")
)
WINDOW = 1_000_000
ROLES = {Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """One prompt of the conversation. `turn` counts from 1."""

    turn: int
    estimated: int
    reported: int

    @property
    def error(self) -> float:
        """How far the estimate is above the provider's count, as a share of it."""
        return self.estimated / self.reported - 1


def play(write: Callable[[random.Random], str], way: str, turns: int, seed: int = 1) -> Iterator[Estimate]:
    """Yield the estimates of `turns` turns of texts by `write`, counted by a double that counts in `way`.

    Every turn asks with such a text, calls a tool that returns one, and answers with a third.
    """
    source, count, counting = random.Random(seed), make_counter("tiktoken").count, COUNTINGS[way]
    tools_tokens = count_tool_specs(TOOLS, count)
    messages: list[PromptMessage] = []
    calibration: Calibration | None = None
    for turn in range(1, turns + 1):
        messages += _asked(turn, write, source)
        prompt = Prompt(SYSTEM, tuple(messages))
        ours = count_prompt(prompt, tools_tokens, count)
        reported = counting.in_messages(_payload(prompt)) + counting.in_tools(_tools())
        yield Estimate(turn, scale(ours, factor(calibration, is_known_tokenizer=False)), reported)
        calibration = learn(calibration, ours=ours, provider=reported, configured_window=WINDOW)
        messages.append(PromptMessage(Role.ASSISTANT, write(source)))


def _asked(turn: int, write: Callable[[random.Random], str], source: random.Random) -> list[PromptMessage]:
    call = ToolCall(f"call_{turn}", "search_history", f'{{"query": "topic {turn}", "limit": 5}}')
    return [
        PromptMessage(Role.USER, write(source)),
        PromptMessage(Role.ASSISTANT, "", tool_calls=(call,)),
        PromptMessage(Role.TOOL, write(source), tool_call_id=call.id, name=call.name),
    ]


def _payload(prompt: Prompt) -> list[Json]:
    return [{"role": "system", "content": prompt.system}, *(_message(message) for message in prompt.messages)]


def _message(message: PromptMessage) -> Json:
    sent: Json = {"role": ROLES[message.role], "content": text_of(message.content)}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        sent["tool_call_id"] = message.tool_call_id
    return sent


def _tools() -> list[Json]:
    return [dict(tool) for tool in to_tools(TOOLS)]
