"""What the Slack door is told at start, and who it found itself to be in the workspace."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """How to reach Slack. `link_by_email`: a confirmed e-mail address of the workspace names the user.

    `concurrency` is how many answers are delivered at once, those that wait for their turn among them.
    `signing_secret` is for events over HTTP, `app_token` for Socket Mode; '' where that way is not used.
    """

    bot_token: str = field(repr=False)
    signing_secret: str = field(default="", repr=False)
    app_token: str = field(default="", repr=False)
    api_url: str = "https://slack.com/api/"
    link_by_email: bool = False
    concurrency: int = 500


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot as `auth.test` describes it. `team_id` is the enterprise's where it is installed for all of it."""

    team_id: str
    team_name: str
    bot_user_id: str
    bot_id: str
    workspace_id: str
