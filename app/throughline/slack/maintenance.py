"""Background loop of the Slack interface that fetches people's names, and links people to users by e-mail address."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import structlog

from throughline.domain.basic_types import Clock, JsonValue
from throughline.domain.errors import DatabaseUnavailable, ThroughlineError
from throughline.domain.message import clean_text
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.slack.config import Identity
from throughline.slack.store.database import SlackDatabase
from throughline.slack.store.people import EmailLink, SlackId
from throughline.slack.web_api import TOKEN_ERRORS, SlackLimited, SlackRefused, SlackUnsure, SlackWebApi

LOOK_SECONDS = 2.0
PEOPLE_AT_ONCE = 3
"""People looked up in LOOK_SECONDS. This stays below Slack's limit of about 100 users.info calls a minute."""

NOBODY = frozenset({"user_not_found", "user_not_visible"})
"""Error codes for people who do not exist in Slack or are hidden from the bot.

They are no members whose address could be confirmed.
"""

LONGEST_NAME = 80
log = structlog.get_logger(__name__)


class Maintenance:
    """Loop that fetches profiles of people who wrote to the bot. Nothing else waits for it."""

    def __init__(
        self, database: SlackDatabase, calls: SlackWebApi, clock: Clock, identity: Identity, *, link_by_email: bool
    ) -> None:
        """Fetch profiles through `calls` and store them in `database`.

        With `link_by_email`, a member with a confirmed e-mail address is linked to the user of that name.
        """
        self._database = database
        self._calls = calls
        self._clock = clock
        self._identity = identity
        self._link_by_email = link_by_email

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the loop while the context is open."""
        async with running_concurrently(self.run, "slack maintenance"):
            yield

    async def run(self) -> None:
        """Run the loop until cancelled."""
        while True:
            with ErrorBoundary(log.error, task="slack maintenance"):
                try:
                    await self.run_once()
                except ThroughlineError as error:
                    log.info("slack profile lookups interrupted, continued later", error=error.code)
            await self._clock.sleep(LOOK_SECONDS)

    async def run_once(self) -> None:
        """Look up the profiles of up to PEOPLE_AT_ONCE people whose look-up is due."""
        for who in await self._database.people.claim_look_ups(PEOPLE_AT_ONCE):
            await self._look_up(who)

    async def _look_up(self, who: SlackId) -> None:
        """Look up one person. A failure affects only this person.

        A failed look-up is retried in minutes, or the next day if Slack refused it for good. Raises
        DatabaseUnavailable, because then no look-up can succeed.
        """
        boundary = ErrorBoundary(
            log.error,
            task="slack profile",
            lets_through=(DatabaseUnavailable,),
            slack_user=who.user_id,
        )
        with boundary:
            try:
                await self._learn(who)
            except SlackRefused as refused:
                log.info("slack profile lookup refused", slack_user=who.user_id, error=refused.error)
                if refused.error in TOKEN_ERRORS:
                    return
                if self._link_by_email and refused.error in NOBODY:
                    await self._follow_email(who, "")
            except (SlackUnsure, SlackLimited) as error:
                log.info("slack profile lookup postponed", slack_user=who.user_id, error=error.code)
                return
            await self._database.people.end_look_up(who)

    async def _learn(self, who: SlackId) -> None:
        """Fetch the profile from Slack and store it. Raises the errors of SlackWebApi, and DatabaseUnavailable."""
        user = await self._calls.user_info(who.user_id)
        profile = _object(user.get("profile"))
        name = str(profile.get("display_name") or profile.get("real_name") or "")
        await self._database.people.set_display_name(who, " ".join(clean_text(name).split())[:LONGEST_NAME])
        email = self._confirmed_email(user, profile, who)
        if self._link_by_email and email is not None:
            await self._follow_email(who, email)

    async def _follow_email(self, who: SlackId, email: str) -> None:
        outcome = await self._database.links.follow_email(who, email)
        if outcome is not EmailLink.AS_IT_WAS:
            log.info("slack email link changed", outcome=outcome.value, slack_user=who.user_id)

    def _confirmed_email(
        self, user: Mapping[str, JsonValue], profile: Mapping[str, JsonValue], who: SlackId
    ) -> str | None:
        """Return the e-mail address that identifies the user, '' if none does, None if Slack does not tell.

        An address counts only if Slack has confirmed it, and its owner is a member of this workspace, no bot and no
        guest.
        """
        if not user:
            return None
        is_plain = not any(user.get(flag) for flag in ("deleted", "is_bot", "is_restricted", "is_ultra_restricted"))
        if not (self._is_member(user, who) and is_plain and user.get("is_email_confirmed")):
            return ""
        return str(profile.get("email") or "").strip().lower() or None  # every member has one: the app may not read it

    def _is_member(self, user: Mapping[str, JsonValue], who: SlackId) -> bool:
        home = str(user.get("team_id") or "")
        enterprise = str(_object(user.get("enterprise_user")).get("enterprise_id") or "")
        own = self._identity.person(who.user_id, home, enterprise_id=enterprise)
        return bool(home) and own == who and who.team_id == self._identity.team_id


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}
