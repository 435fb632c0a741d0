"""A Slack on the loopback: a Web API with rate limits, expiring streams and errors, Socket Mode, and signed events."""

from fakes.slack_double.methods import TIERS, Failure, Limit
from fakes.slack_double.payloads import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    SIGNING_SECRET,
    TEAM,
    Person,
    Posted,
    Said,
    Workspace,
    say,
)
from fakes.slack_double.sender import Delivery, Sender, sign
from fakes.slack_double.server import SlackDouble, serve_slack

__all__ = [
    "APP_TOKEN",
    "BOT_TOKEN",
    "BOT_USER",
    "SIGNING_SECRET",
    "TEAM",
    "TIERS",
    "Delivery",
    "Failure",
    "Limit",
    "Person",
    "Posted",
    "Said",
    "Sender",
    "SlackDouble",
    "Workspace",
    "say",
    "serve_slack",
    "sign",
]
