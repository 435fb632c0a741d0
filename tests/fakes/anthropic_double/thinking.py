"""Thinking blocks, signed by the model that wrote them: refused if changed, of another model, or missing."""

from collections.abc import Sequence
from hashlib import sha256

from fakes.anthropic_double.refusals import Refused
from fakes.provider_double.json_types import Json

KINDS = frozenset({"thinking", "redacted_thinking"})


def sign(model: str, text: str) -> str:
    """Return the signature of a thinking text, or the encrypted form of one that is not shown."""
    return sha256(f"{model} {text}".encode()).hexdigest()


def thinking_blocks(model: str, thinking: str, redacted: str) -> list[Json]:
    """Return the blocks with which an answer begins."""
    blocks: list[Json] = []
    if redacted:
        blocks.append({"type": "redacted_thinking", "data": f"{sign(model, redacted)} {redacted}"})
    if thinking:
        blocks.append({"type": "thinking", "thinking": thinking, "signature": sign(model, thinking)})
    return blocks


def check_thinking(body: Json) -> None:
    """Raise Refused for blocks that this model did not write, or a step under way that lacks its blocks."""
    messages = [message for message in body["messages"] if isinstance(message["content"], list)]
    for index, message in enumerate(messages):
        for place, block in enumerate(message["content"]):
            if block["type"] in KINDS and not _is_own(body["model"], block):
                raise Refused(f"messages.{index}.content.{place}: Invalid `signature` in `thinking` block")
    if (body.get("thinking") or {}).get("type") == "enabled":
        _check_last_step(body["messages"])


def _is_own(model: str, block: Json) -> bool:
    if block["type"] == "thinking":
        return bool(block["signature"] == sign(model, block["thinking"]))
    encrypted, _, text = block["data"].partition(" ")
    return bool(encrypted == sign(model, text))


def _check_last_step(messages: Sequence[Json]) -> None:
    """A step whose results are being sent must begin as the model wrote it."""
    last, results = messages[-2:] if len(messages) > 1 else (messages[-1], messages[-1])
    has_results = isinstance(results["content"], list) and any(b["type"] == "tool_result" for b in results["content"])
    if last["role"] != "assistant" or not has_results:
        return
    first = last["content"][0]["type"]
    if first not in KINDS:
        raise Refused(
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{first}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )
