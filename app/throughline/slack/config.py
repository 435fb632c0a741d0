"""What the Slack door is told at start, and who it found itself to be in the workspace."""

from dataclasses import dataclass, field

from throughline.db.slack.people import SlackId


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """How to reach Slack. `link_by_email`: a confirmed e-mail address of the workspace names the user.

    `concurrency` is how many answers are delivered at once, those that wait for their turn among them, and
    `lease_seconds` how long one that a process has taken waits for another should that process die.
    `signing_secret` is for events over HTTP, `app_token` for Socket Mode; '' where that way is not used.
    """

    bot_token: str = field(repr=False)
    signing_secret: str = field(default="", repr=False)
    app_token: str = field(default="", repr=False)
    api_url: str = "https://slack.com/api/"
    link_by_email: bool = False
    concurrency: int = 500
    lease_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot as `auth.test` describes it. `team_id` is the enterprise's where it is installed for all of it."""

    team_id: str
    team_name: str
    bot_user_id: str
    bot_id: str
    workspace_id: str

    def person(self, user_id: str, team_id: str, *, enterprise_id: str = "", may_be_outsider: bool = True) -> SlackId:
        """Return whom Slack means: our own people have our own id, those of others, in shared channels, theirs.

        `team_id` and `enterprise_id` are what Slack says of their home, '' where it says nothing. Of an enterprise that
        the app is installed for, Slack names now the one, now the other workspace, now itself as a member's home.
        `may_be_outsider` is False where only members can be.
        """
        is_ours = team_id in {"", self.workspace_id, self.team_id}
        if not is_ours and self.team_id != self.workspace_id:
            is_ours = enterprise_id == self.team_id or not may_be_outsider
        return SlackId(self.team_id if is_ours else team_id, user_id)
