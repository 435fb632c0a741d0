"""Base class of the sections of the settings. A section holds the settings of one subject, in the reference's order.

`description` says all that an operator has to know of a setting: `.env.example` and the reference are made from it.
`examples` has a sample value where the default is none.
"""

from pydantic import BaseModel, ConfigDict

from throughline.agents.section import check_base_url, check_variable

HOUR, DAY = 3_600, 86_400
"""Upper bounds of settings in seconds. A longer wait is a mistake, and clocks and intervals may overflow."""


class SettingsSection(BaseModel):
    """Base class of the sections. Only the class that joins them is validated."""

    model_config = ConfigDict(defer_build=True, frozen=True)


def check_address(value: str) -> str:
    """Return the address of a server, '' for an unset one. Raises ValueError if it is no address."""
    return check_base_url(value) if value else value


def check_variable_name(value: str) -> str:
    """Return `value`, the name of an environment variable or ''.

    Raises ValueError for a name that is not in capitals, digits and underscores.
    """
    return check_variable(value) if value else value
