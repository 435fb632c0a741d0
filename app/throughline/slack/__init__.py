"""The Slack interface: it receives messages from Slack, delivers answers to it, and handles the command `/agent`."""

from throughline.ports.front_end import FrontEndParts

PARTS = FrontEndParts(
    endpoint="front_end:open_endpoint",
    program="front_end:SOCKET_MODE",
    command="command_line:slack",
    storage="store.database:STORAGE",
    settings="settings:SlackSettings",
)
