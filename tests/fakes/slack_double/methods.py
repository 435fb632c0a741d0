"""The Web API methods the double knows, as strict as their pages below https://docs.slack.dev/reference/methods/."""

from collections.abc import Callable

from fakes.provider_double.json_types import Json
from fakes.slack_double.blocks import check_blocks
from fakes.slack_double.rules import Refused
from fakes.slack_double.workspace import BOT_ID, BOT_USER, TEAM, Posted, Workspace

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
    text = _text(args)
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
    text = _text(args)
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
    text = _markdown(args, is_needed=False)
    if len(text) > workspace.most_chars:
        raise Refused("msg_too_long")
    message = _new(workspace, args, text)
    message.is_streaming = message.was_streamed = True
    message.started = workspace.now()
    return {"channel": message.channel, "ts": message.ts}


def append_stream(workspace: Workspace, args: Json) -> Json:
    message = _streaming(workspace, args)
    _append(workspace, message, _markdown(args))
    return {"channel": message.channel, "ts": message.ts}


def stop_stream(workspace: Workspace, args: Json) -> Json:
    message = _streaming(workspace, args)
    _append(workspace, message, _markdown(args, is_needed=False))
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


def _text(args: Json) -> str:
    """Return a message's text and check its blocks; `markdown_text` may not stand beside `text` or `blocks`."""
    check_blocks(args.get("blocks"))
    if args.get("markdown_text") is not None:
        if args.get("text") or args.get("blocks"):
            raise Refused("markdown_text_conflict")
        return _markdown(args)
    text = args.get("text") or ""
    if not (str(text).strip() or args.get("blocks")):
        raise Refused("no_text")
    return str(text)


def _markdown(args: Json, *, is_needed: bool = True) -> str:
    text = args.get("markdown_text") or ""
    if len(text) > MAX_MARKDOWN:
        raise Refused("msg_too_long")
    if (is_needed or text) and not str(text).strip():
        raise Refused("no_text")
    return str(text)


def _shown(message: Posted) -> Json:
    shown: Json = {"type": "message", "user": BOT_USER, "bot_id": BOT_ID, "text": message.text, "ts": message.ts}
    return shown | {"thread_ts": message.thread_ts} | ({"metadata": message.metadata} if message.metadata else {})
