"""The Slack app's manifest, for https://api.slack.com/apps → Create New App → From a manifest.

Its fields: https://docs.slack.dev/reference/app-manifest/ .
"""

import json

from throughline.slack.http import PATH
from throughline.slack.setup_check import BOT_SCOPES, EMAIL_SCOPE, LEAVING_SCOPES

EVENTS = (
    "app_mention",
    "app_uninstalled",
    "member_left_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "tokens_revoked",
)


def manifest(name: str, url: str) -> str:
    """Return the manifest as JSON, for events over HTTP at `url`, or for Socket Mode if `url` is ''."""
    events_url = f"{url.rstrip('/')}{PATH}" if url else ""
    request = {"request_url": events_url} if url else {}
    command = {
        "command": "/agent",
        "description": "Commands about the thread you last wrote in",
        "usage_hint": "context | summarize [focus] | new | stop | resume SESSION_ID | help",
        "should_escape": False,
    }
    written = {
        "display_information": {"name": name, "description": "Conversations that can run for ever"},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [command | ({"url": events_url} if url else {})],
            "assistant_view": {"assistant_description": "Answers in threads, and remembers"},
        },
        "oauth_config": {"scopes": {"bot": sorted([*BOT_SCOPES, *LEAVING_SCOPES, EMAIL_SCOPE])}},
        "settings": {
            "event_subscriptions": {**request, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **request},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }
    return json.dumps(written, indent=2)
