"""The settings of the Slack interface."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, model_validator

from throughline.ports.front_end import FrontEndSection


class SlackSettings(FrontEndSection):
    """Slack: the app's secrets, and who answers whom."""

    subject: ClassVar[str] = "Slack"

    slack_bot_token: str = Field(
        "", repr=False, description="The app's token in its workspace (xoxb-…); empty: no Slack."
    )
    slack_signing_secret: str = Field(
        "",
        repr=False,
        description="The app's signing secret, for events over HTTP at /slack/events of `throughline serve`.",
    )
    slack_app_token: str = Field(
        "", repr=False, description="An app-level token (xapp-…), for Socket Mode with `throughline slack`."
    )
    slack_agent: str = Field("assistant", description="The agent that answers in Slack.")
    slack_link_by_email: bool = Field(
        default=False,
        description="Link a workspace member with a confirmed e-mail address to the user of that name. Others are "
        "guests until they are linked by a code.",
    )
    slack_api_url: str = Field(
        "https://slack.com/api/", pattern="^https?://.+/$", description="Address of Slack's Web API."
    )

    @model_validator(mode="after")
    def _check_app_token_has_a_bot(self) -> Self:
        if self.slack_app_token and not self.slack_bot_token:
            raise ValueError("SLACK_APP_TOKEN needs SLACK_BOT_TOKEN; to run without Slack, unset both")
        return self

    def needed_agents(self) -> Mapping[str, str]:
        """Return the agent that answers in Slack."""
        return {"SLACK_AGENT": self.slack_agent}
