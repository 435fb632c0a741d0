"""The tool `current_time`, which returns the date and time in a time zone."""

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from throughline.tools.tool import ToolFailed


def make_current_time(now: Callable[[], float]) -> Callable[..., str]:
    """Return the function of the tool `current_time`. `now` returns seconds since the epoch."""

    def current_time(timezone: str = "UTC") -> str:
        """Tell the current date, weekday and time in a time zone.

        Args:
            timezone: an IANA name such as Europe/Berlin or America/New_York.
        """
        moment = datetime.fromtimestamp(now(), _find_zone(timezone))
        return f"{moment.isoformat(timespec='seconds')} ({moment:%A}, {timezone})"

    return current_time


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # not found, no proper name, a folder
        raise ToolFailed(
            f"There is no time zone {name[:80]!r}. Use an IANA name such as Europe/Berlin, or UTC."
        ) from error
