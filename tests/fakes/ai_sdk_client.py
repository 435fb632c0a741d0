"""A client that reads streams as the AI SDK's `useChat` does, and is stricter: it refuses what the protocol has not."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]
TOOL_FLAGS = frozenset({"dynamic", "providerExecuted"})
FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "start": (frozenset({"messageId", "messageMetadata"}), frozenset()),
    "finish": (frozenset({"finishReason", "messageMetadata"}), frozenset()),
    "start-step": (frozenset(), frozenset()),
    "finish-step": (frozenset(), frozenset()),
    "reset-step": (frozenset(), frozenset()),
    "abort": (frozenset({"reason"}), frozenset()),
    "error": (frozenset({"errorText"}), frozenset()),
    **{f"{kind}-{end}": (frozenset({"id"}), frozenset()) for kind in ("text", "reasoning") for end in ("start", "end")},
    **{f"{kind}-delta": (frozenset({"id", "delta"}), frozenset()) for kind in ("text", "reasoning")},
    "tool-input-start": (frozenset({"toolCallId", "toolName"}), TOOL_FLAGS),
    "tool-input-delta": (frozenset({"toolCallId", "inputTextDelta"}), frozenset()),
    "tool-input-available": (frozenset({"toolCallId", "toolName", "input"}), TOOL_FLAGS),
    "tool-approval-request": (frozenset({"approvalId", "toolCallId"}), frozenset()),
    "tool-output-available": (frozenset({"toolCallId", "output"}), frozenset()),
    "tool-output-error": (frozenset({"toolCallId", "errorText"}), frozenset()),
    "tool-output-denied": (frozenset({"toolCallId"}), frozenset()),
    "data-context": (frozenset({"id", "data"}), frozenset()),
    "data-progress": (frozenset({"data", "transient"}), frozenset()),
    "data-compaction": (frozenset({"data", "transient"}), frozenset()),
}
"""The fields that a chunk must have, and those that it may have, beside its type."""


def read_chunks(stream: str) -> list[Json]:
    """Return the chunks of a stream, which has to end with `[DONE]`."""
    lines = [line for line in stream.split("\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), lines
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def check_fields(chunk: Json) -> None:
    needed, allowed = FIELDS[chunk["type"]]
    fields = chunk.keys() - {"type"}
    assert needed <= fields <= needed | allowed, chunk


@dataclass
class Answer:
    """An answer that is being read: its parts, and those that are being written."""

    message: Json
    active: dict[tuple[str, str], Json] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)
    is_in_step: bool = False
    error: str = ""
    is_aborted: bool = False
    finish_reason: str = ""

    @property
    def parts(self) -> list[Json]:
        parts: list[Json] = self.message["parts"]
        return parts

    def call(self, call_id: str) -> Json:
        """Return the newest part of a call."""
        return next(part for part in reversed(self.parts) if part.get("toolCallId") == call_id)

    def add(self, chunk: Json) -> None:
        check_fields(chunk)
        kind, _, rest = chunk["type"].partition("-")
        match kind:
            case "text" | "reasoning":
                self._add_text(kind, rest, chunk)
            case "tool":
                self._add_tool(rest, chunk)
            case "data":
                self.parts.extend([] if chunk.get("transient") else [dict(chunk)])
            case "error":
                self.error = chunk["errorText"]
            case "abort":
                self.is_aborted = True
            case _ if rest == "step":
                self._add_step(kind)
            case _:
                self._add_bound(kind, chunk)

    def _add_bound(self, kind: str, chunk: Json) -> None:
        if kind == "start":
            self.message |= {"id": chunk["messageId"], "metadata": chunk["messageMetadata"]}
            return
        assert not self.is_in_step
        self.finish_reason = chunk["finishReason"]
        self.message["metadata"] = {**self.message["metadata"], **chunk["messageMetadata"]}

    def _add_step(self, kind: str) -> None:
        assert self.is_in_step is (kind != "start")
        match kind:
            case "start":
                self.parts.append({"type": "step-start"})
            case "finish":
                assert not self.active
            case _:
                while self.parts[-1]["type"] != "step-start":
                    self.parts.pop()
                self.active.clear()
                self.inputs.clear()
        self.is_in_step = kind != "finish"

    def _add_text(self, kind: str, moment: str, chunk: Json) -> None:
        key = (kind, chunk["id"])
        if moment == "start":
            assert self.is_in_step
            assert key not in self.active
            self.active[key] = {"type": kind, "text": "", "state": "streaming"}
            self.parts.append(self.active[key])
        elif moment == "delta":
            self.active[key]["text"] += chunk["delta"]
        else:
            self.active.pop(key)["state"] = "done"

    def _add_tool(self, moment: str, chunk: Json) -> None:
        call_id = chunk["toolCallId"]
        match moment:
            case "input-start":
                assert self.is_in_step
                self.inputs.add(call_id)
                self.parts.append({**_tool(chunk), "state": "input-streaming", "raw": ""})
            case "input-delta":
                assert call_id in self.inputs
                self.call(call_id)["raw"] += chunk["inputTextDelta"]
            case "input-available":
                self._complete_call(call_id, chunk)
            case "approval-request":
                self.call(call_id).update(state="approval-requested", approval={"id": chunk["approvalId"]})
            case _:
                given = {name: chunk[name] for name in ("output", "errorText") if name in chunk}
                self.call(call_id).update(state=moment, **given)

    def _complete_call(self, call_id: str, chunk: Json) -> None:
        if call_id in self.inputs:
            self.inputs.discard(call_id)
            assert self.call(call_id).items() >= _tool(chunk).items()
            self.call(call_id).pop("raw")
        else:
            self.parts.append(_tool(chunk))
        self.call(call_id).update(state="input-available", input=chunk["input"])


def _tool(chunk: Json) -> Json:
    if chunk.get("dynamic"):
        kind = {"type": "dynamic-tool", "toolName": chunk["toolName"], "providerExecuted": chunk["providerExecuted"]}
        return {**kind, "toolCallId": chunk["toolCallId"]}
    return {"type": f"tool-{chunk['toolName']}", "toolCallId": chunk["toolCallId"]}


def read_answer(chunks: Iterable[Json], before: Json | None = None) -> Answer:
    """Return the answer that the chunks make, or go on with. A part may be open only after an error or an abort."""
    answer = Answer(before or {"id": "", "role": "assistant", "parts": []})
    for chunk in chunks:
        assert not answer.finish_reason
        answer.add(chunk)
    assert answer.finish_reason or answer.error or answer.is_aborted
    assert not (answer.finish_reason and (answer.active or answer.inputs))
    return answer


def said(message: Json) -> list[object]:
    """Return what matters of a message: its texts, and name, state and output of its calls."""
    return [one for part in message["parts"] if (one := _said(part)) is not None]


def _said(part: Json) -> object:
    if part["type"] == "text":
        return part["text"]
    if "toolCallId" in part:
        name = part.get("toolName") or part["type"].removeprefix("tool-")
        return (name, part["state"], part.get("output", part.get("errorText")))
    return None


@dataclass
class UIChat:
    """A chat as `useChat` keeps it; with `sends_newest` only the newest message is sent."""

    http: httpx.AsyncClient
    id: str = "chat-1"
    agent: str = "assistant"
    body: Json = field(default_factory=dict)
    sends_newest: bool = False
    messages: list[Json] = field(default_factory=list)
    next_id: int = 1

    @property
    def path(self) -> str:
        return f"/ai-sdk/{self.agent}"

    async def post(self, **body: object) -> httpx.Response:
        """Send the chat as it stands."""
        chat = {"message": self.messages[-1]} if self.sends_newest else {"messages": self.messages}
        sent = {"id": self.id, "trigger": "submit-message", **chat, **self.body, **body}
        return await self.http.post(self.path, json=sent)

    def write(self, text: str, *files: Json) -> Json:
        """Add a message of the user."""
        message = {"id": f"u{self.next_id}", "role": "user", "parts": [*files, {"type": "text", "text": text}]}
        self.next_id += 1
        self.messages.append(message)
        return message

    async def say(self, text: str, *files: Json) -> Answer:
        """Send a message of the user, and keep its answer."""
        self.write(text, *files)
        return await self.answer()

    async def answer(self, **body: object) -> Answer:
        """Send the chat, and keep the answer: a new one, or what follows of the last."""
        response = await self.post(**body)
        assert response.status_code == httpx.codes.OK, response.text
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        last = self.messages.pop() if self.messages[-1]["role"] == "assistant" else None
        answer = read_answer(read_chunks(response.text), last)
        self.messages.append(answer.message)
        return answer

    async def regenerate(self, index: int = -1) -> Answer:
        """Ask again for the answer at this index."""
        asked = self.messages[index]
        self.messages = self.messages[:index]
        return await self.answer(trigger="regenerate-message", messageId=asked["id"])

    async def edit(self, index: int, text: str) -> Answer:
        """Replace a message of the user, and ask again from there."""
        message = {**self.messages[index], "parts": [{"type": "text", "text": text}]}
        self.messages = [*self.messages[:index], message]
        return await self.answer(messageId=message["id"])

    async def give(self, call_id: str, output: object) -> Answer:
        """Give a call its output."""
        Answer(self.messages[-1]).call(call_id).update(state="output-available", output=output)
        return await self.answer(messageId=self.messages[-1]["id"])

    async def decide(self, call_id: str, *, approved: bool, reason: str | None = None) -> Answer:
        """Approve or reject a call."""
        approval = {"id": call_id, "approved": approved, "reason": reason}
        Answer(self.messages[-1]).call(call_id).update(state="approval-responded", approval=approval)
        return await self.answer(messageId=self.messages[-1]["id"])

    async def stored(self, **query: int) -> list[Json]:
        """Return the stored messages of the chat."""
        response = await self.http.get(f"{self.path}/{self.id}/messages", params=query)
        assert response.status_code == httpx.codes.OK, response.text
        messages: list[Json] = response.json()
        return messages
