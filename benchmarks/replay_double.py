"""Talks to a provider double's control routes: tells it what to answer, asks it what it saw, lets it count."""

import itertools
import time
from collections.abc import Iterator, Sequence

import httpx

from benchmarks.replay_check import Json, Said, said_in
from benchmarks.replay_data import Step, Turn

BATCH = 50
LEAST_TURNS = 4
"""One turn of a coding agent may take more than three windows; a conversation has more than one."""

SETTLED_SECONDS = 1.0
CONTROL_SECONDS = 330.0


class DoubleControl:
    """The control routes of one double. `url` is the base URL for clients."""

    def __init__(self, url: str, provider: str) -> None:
        """Connect."""
        self.provider = provider
        self._http = httpx.Client(base_url=url.removesuffix("/v1"), timeout=CONTROL_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def reset(self) -> None:
        """Have it forget all requests, once no more of them come."""
        self.settle()
        self._http.post("/control/reset").raise_for_status()

    def script(self, line: str, turn: Turn) -> None:
        """Tell it the turn's answers; steps left over from a failed turn are dropped."""
        steps = [_step_json(step) for step in turn.steps]
        self._http.post("/control/script", json={"steps": steps, "line": line, "replace": True}).raise_for_status()

    def settle(self) -> None:
        """Wait until nobody asks it anything: summaries may still be written in the background."""
        seen, until = -1, 0.0
        while time.monotonic() < until or seen != self._requests_seen():
            if seen != (now := self._requests_seen()):
                seen, until = now, time.monotonic() + SETTLED_SECONDS
            time.sleep(SETTLED_SECONDS / 10)

    def requests(self) -> list[Json]:
        """Return the records of all requests since the last reset."""
        found: list[Json] = self._http.get("/control/requests").raise_for_status().json()
        return found

    def fill(self, turns: Iterator[Turn], model: str, tokens: int) -> tuple[Turn, ...]:
        """Take turns until they hold at least `tokens` by the model's own count, and are LEAST_TURNS at least."""
        taken: list[Turn] = []
        while tokens > 0 or len(taken) < LEAST_TURNS:
            batch = list(itertools.islice(turns, BATCH))
            counts = self.count(model, [("", tuple(said_in(turn))) for turn in batch])
            for turn, counted in zip(batch, counts, strict=True):
                if tokens > 0 or len(taken) < LEAST_TURNS:
                    taken.append(turn)
                    tokens -= counted
        return tuple(taken)

    def count(self, model: str, prompts: Sequence[tuple[str, tuple[Said, ...]]]) -> list[int]:
        """Return the model's own count of each prompt, a system prompt and what was said."""
        as_prompt = openai_prompt if self.provider == "openai" else anthropic_prompt
        body = {"model": model, "prompts": [as_prompt(system, said) for system, said in prompts]}
        counted: list[int] = self._http.post("/control/count", json=body).raise_for_status().json()["prompts"]
        return counted

    def full_history(self, model: str, system_prompt: str, turns: Sequence[Turn]) -> list[int]:
        """Return what each prompt would come to with the whole history in it; the tools' schemas left out."""
        said = [item for turn in turns for item in said_in(turn)]
        fixed, *tokens = self.count(model, [(system_prompt, ()), *(("", (item,)) for item in said)])
        reply = self.count(model, [("", ())])[0]
        prompts: list[int] = []
        history = fixed
        for item, counted in zip(said, tokens, strict=True):
            if item.role == "assistant":
                prompts.append(history)
            history += counted - reply
        return prompts

    def _requests_seen(self) -> int:
        verdicts: dict[str, int] = self._http.get("/control/stats").raise_for_status().json()["verdicts"]
        return sum(verdicts.values())


def openai_prompt(system: str, said: Sequence[Said]) -> list[Json]:
    """Return chat messages."""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, *map(_chat_message, said)]


def anthropic_prompt(system: str, said: Sequence[Said]) -> Json:
    """Return as much of a Messages request as is counted; each result is a message of its own."""
    return {"messages": [_blocks_message(item) for item in said], **({"system": system} if system else {})}


def _chat_message(said: Said) -> Json:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in said.calls
    ]
    named = {"tool_call_id": said.tool_call_id} if said.tool_call_id else {}
    return {"role": said.role, "content": said.content, **named, **({"tool_calls": calls} if calls else {})}


def _blocks_message(said: Said) -> Json:
    if said.tool_call_id:
        result = {"type": "tool_result", "tool_use_id": said.tool_call_id, "content": said.content}
        return {"role": "user", "content": [result]}
    texts: list[Json] = [{"type": "text", "text": said.content}] if said.content else []
    calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": {"arguments": arguments}}
        for call_id, name, arguments in said.calls
    ]
    return {"role": said.role, "content": [*texts, *calls]}


def _step_json(step: Step) -> Json:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in step.calls]
    return {"text": step.text, "calls": calls}
