"""The Web API methods of the double, and how they misbehave on demand."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.provider_double.json_types import Json
from fakes.slack_double.payloads import BOT_ID, BOT_USER, TEAM, Posted, Workspace


class Refused(Exception):
    """The method answers `{"ok": false, "error": …}`."""

    def __init__(self, error: str, **more: str) -> None:
        super().__init__(error)
        self.error = error
        self.more = more


@dataclass(frozen=True, slots=True)
class Failure:
    """What becomes of a call: a Slack `error`, an HTTP `status`, a cut connection (`drops`), or a `delay`.

    Without an `error` the body is a proxy's words, which `content_type` may call JSON all the same.

    `acts` is True where the call has its effect all the same and only its answer is lost.
    """

    error: str = ""
    status: int = 200
    retry_after: int = 0
    drops: bool = False
    acts: bool = False
    delay_seconds: float = 0.0
    content_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `calls` in `seconds`, as https://docs.slack.dev/apis/web-api/rate-limits/ has it for each method."""

    calls: int
    seconds: float
    retry_after: int = 1


TIERS = {
    "chat.startStream": Limit(20, 60),
    "chat.appendStream": Limit(100, 60),
    "chat.stopStream": Limit(20, 60),
    "chat.update": Limit(50, 60),
    "conversations.replies": Limit(50, 60),
    "users.info": Limit(100, 60),
}
"""The lowest number of each method's tier, from the method pages below https://docs.slack.dev/reference/methods/."""


@dataclass(slots=True)
class Rules:
    """Failures are used up in order, each by one call of its method; limits hold all the time."""

    now: Callable[[], float]
    limits: dict[str, Limit] = field(default_factory=dict)
    _failures: defaultdict[str, deque[Failure]] = field(default_factory=lambda: defaultdict(deque))
    _seen: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def fail(self, method: str, *failures: Failure) -> None:
        """Let the next calls of the method fail."""
        self._failures[method].extend(failures)

    def take(self, method: str) -> Failure | None:
        """Return what is to become of this call, None where it may go on."""
        if self._failures[method]:
            return self._failures[method].popleft()
        limit = self.limits.get(method)
        return None if limit is None else self._over(method, limit)

    def complaints(self) -> list[str]:
        """Return the failures that no call has met."""
        return [f"{method}: {len(waiting)} unused" for method, waiting in self._failures.items() if waiting]

    def _over(self, method: str, limit: Limit) -> Failure | None:
        seen, now = self._seen[method], self.now()
        while seen and now - seen[0] > limit.seconds:
            seen.popleft()
        if len(seen) >= limit.calls:
            return Failure(status=429, retry_after=limit.retry_after)
        seen.append(now)
        return None


MOST_BLOCKS, MOST_ELEMENTS = 50, 25
MOST_SECTION, MOST_MARKDOWN, MOST_LABEL, MOST_VALUE, MOST_ACTION_ID = 3_000, 12_000, 75, 2_000, 255
STYLES = {"primary", "danger"}
Block = Mapping[str, Any]  # Any: as JSON has it


def check_blocks(blocks: object) -> None:
    """Raise Refused for blocks that Slack would not show; None and [] are no blocks."""
    if not blocks:
        return
    _require(isinstance(blocks, list) and len(blocks) <= MOST_BLOCKS)
    assert isinstance(blocks, list)
    for block in blocks:
        check = CHECKS.get(block.get("type"))
        _require(check is not None)
        assert check is not None
        check(block)
    written = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    _require(written <= MOST_MARKDOWN)


def _section(block: Block) -> None:
    _text(block["text"], MOST_SECTION)


def _context(block: Block) -> None:
    _require(1 <= len(block["elements"]) <= 10)
    for element in block["elements"]:
        _text(element, MOST_SECTION)


def _markdown(block: Block) -> None:
    _require(bool(block["text"].strip()))


def _rich_text(block: Block) -> None:
    for element in block["elements"]:
        _require(element["type"] in {"rich_text_preformatted", "rich_text_section", "rich_text_quote"})
        for part in element["elements"]:
            _require(part["type"] == "text" and bool(part["text"]))


def _actions(block: Block) -> None:
    elements = block["elements"]
    _require(1 <= len(elements) <= MOST_ELEMENTS)
    _require(len({element["action_id"] for element in elements}) == len(elements))
    for button in elements:
        _require(button["type"] == "button" and button["text"]["type"] == "plain_text")
        _require(1 <= len(button["text"]["text"]) <= MOST_LABEL and len(button["value"]) <= MOST_VALUE)
        _require(len(button["action_id"]) <= MOST_ACTION_ID and button.get("style", "primary") in STYLES)


def _text(text: Mapping[str, Any], most: int) -> None:
    _require(text["type"] in {"mrkdwn", "plain_text"} and 1 <= len(text["text"]) <= most)


def _require(is_valid: object) -> None:
    if not is_valid:
        raise Refused("invalid_blocks")


CHECKS: dict[str, Callable[[Block], None]] = {
    "actions": _actions,
    "context": _context,
    "markdown": _markdown,
    "rich_text": _rich_text,
    "section": _section,
}


MAX_MARKDOWN = 12_000
SCOPE_OF = {
    "assistant.threads.setStatus": "assistant:write",
    "chat.appendStream": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.startStream": "chat:write",
    "chat.stopStream": "chat:write",
    "chat.update": "chat:write",
    "users.info": "users:read",
}


def auth_test(workspace: Workspace, args: Json) -> Json:
    del workspace, args
    return {"url": "https://double.slack.com/", "team": "Double", "team_id": TEAM, "user": "throughline"} | {
        "user_id": BOT_USER,
        "bot_id": BOT_ID,
        "is_enterprise_install": False,
    }


def post_message(workspace: Workspace, args: Json) -> Json:
    text = _text_methods(args)
    if len(text) > workspace.most_chars:
        raise Refused("msg_too_long")
    message = _new(workspace, args, text)
    message.metadata, message.blocks = args.get("metadata"), args.get("blocks")
    return {"channel": message.channel, "ts": message.ts, "message": {"text": text, "bot_id": BOT_ID}}


def post_ephemeral(workspace: Workspace, args: Json) -> Json:
    workspace.responses.append((f"ephemeral:{args['channel']}:{args['user']}", args))
    return {"message_ts": workspace.next_ts()}


def update(workspace: Workspace, args: Json) -> Json:
    message = _existing(workspace, args)
    if message.is_streaming:
        raise Refused("streaming_state_conflict")
    text = _text_methods(args)
    if len(text) > workspace.most_chars:
        raise Refused("msg_too_long")
    message.text, message.blocks = text, args.get("blocks")
    message.edits += 1
    message.written.append(text)
    message.metadata = args.get("metadata") or message.metadata
    return {"channel": message.channel, "ts": message.ts, "text": text}


def start_stream(workspace: Workspace, args: Json) -> Json:
    if not args.get("thread_ts"):
        raise Refused("invalid_arguments")
    if not args["channel"].startswith("D"):
        for name in ("recipient_team_id", "recipient_user_id"):
            if not args.get(name):
                raise Refused(f"missing_{name}")
    text = _markdown_methods(args, is_needed=False)
    if len(text) > workspace.most_chars:
        raise Refused("msg_too_long")
    message = _new(workspace, args, text)
    message.is_streaming = message.was_streamed = True
    message.started = workspace.now()
    return {"channel": message.channel, "ts": message.ts}


def append_stream(workspace: Workspace, args: Json) -> Json:
    message = _streaming(workspace, args)
    _append(workspace, message, _markdown_methods(args))
    return {"channel": message.channel, "ts": message.ts}


def stop_stream(workspace: Workspace, args: Json) -> Json:
    message = _streaming(workspace, args)
    _append(workspace, message, _markdown_methods(args, is_needed=False))
    message.is_streaming = False
    message.metadata, message.blocks = args.get("metadata"), args.get("blocks")
    return {"channel": message.channel, "ts": message.ts, "message": {"text": message.text}}


def set_status(workspace: Workspace, args: Json) -> Json:
    workspace.statuses.append((args["channel_id"], args["thread_ts"], args["status"]))
    return {}


def replies(workspace: Workspace, args: Json) -> Json:
    found = [_shown(item) for item in workspace.in_thread(args["channel"], args["ts"])]
    newer = [item for item in found if float(item["ts"]) > float(args.get("oldest") or 0)]
    return {"messages": newer[: int(args.get("limit") or 1_000)], "has_more": False}


def users_info(workspace: Workspace, args: Json) -> Json:
    person = workspace.people.get(args["user"])
    if person is None:
        raise Refused("user_not_found")
    profile = {"real_name": person.name, "display_name": person.name}
    if "users:read.email" in workspace.scopes and person.email:
        profile["email"] = person.email
    user = {"id": person.id, "team_id": person.team, "deleted": False, "is_bot": False, "profile": profile}
    user |= {"is_email_confirmed": person.is_email_confirmed, "real_name": person.name}
    if person.enterprise:
        user["enterprise_user"] = {"id": person.id, "enterprise_id": person.enterprise}
    return {"user": user | dict.fromkeys(person.flags, True)}


METHODS: dict[str, Callable[[Workspace, Json], Json]] = {
    "assistant.threads.setStatus": set_status,
    "auth.test": auth_test,
    "chat.appendStream": append_stream,
    "chat.postEphemeral": post_ephemeral,
    "chat.postMessage": post_message,
    "chat.startStream": start_stream,
    "chat.stopStream": stop_stream,
    "chat.update": update,
    "conversations.replies": replies,
    "users.info": users_info,
}


def perform(workspace: Workspace, method: str, args: Json) -> Json:
    """Do what the method does and return its answer. Raises Refused."""
    if method not in METHODS:
        raise Refused("unknown_method")
    needed = SCOPE_OF.get(method)
    if needed is not None and needed not in workspace.scopes:
        raise Refused("missing_scope", needed=needed, provided=",".join(workspace.scopes))
    return METHODS[method](workspace, args)


def _new(workspace: Workspace, args: Json, text: str) -> Posted:
    if not args.get("channel"):
        raise Refused("channel_not_found")
    ts = workspace.next_ts()
    message = Posted(channel=args["channel"], ts=ts, thread_ts=args.get("thread_ts") or ts, text=text, written=[text])
    workspace.posted.append(message)
    return message


def _existing(workspace: Workspace, args: Json) -> Posted:
    message = workspace.find(args.get("channel", ""), args.get("ts", ""))
    if message is None:
        raise Refused("message_not_found")
    return message


def _streaming(workspace: Workspace, args: Json) -> Posted:
    message = _existing(workspace, args)
    if not message.is_streaming:
        raise Refused("message_not_in_streaming_state")
    return message


def _append(workspace: Workspace, message: Posted, text: str) -> None:
    if len(message.text) + len(text) > workspace.most_chars:
        raise Refused("msg_too_long")
    message.text += text
    if text:
        message.written.append(text)


def _text_methods(args: Json) -> str:
    """Return a message's text and check its blocks; `markdown_text` may not stand beside `text` or `blocks`."""
    check_blocks(args.get("blocks"))
    if args.get("markdown_text") is not None:
        if args.get("text") or args.get("blocks"):
            raise Refused("markdown_text_conflict")
        return _markdown_methods(args)
    text = args.get("text") or ""
    if not (str(text).strip() or args.get("blocks")):
        raise Refused("no_text")
    return str(text)


def _markdown_methods(args: Json, *, is_needed: bool = True) -> str:
    text = args.get("markdown_text") or ""
    if len(text) > MAX_MARKDOWN:
        raise Refused("msg_too_long")
    if (is_needed or text) and not str(text).strip():
        raise Refused("no_text")
    return str(text)


def _shown(message: Posted) -> Json:
    shown: Json = {"type": "message", "user": BOT_USER, "bot_id": BOT_ID, "text": message.text, "ts": message.ts}
    return shown | {"thread_ts": message.thread_ts} | ({"metadata": message.metadata} if message.metadata else {})
