"""The setting of the console."""

from typing import ClassVar

from pydantic import Field

from throughline.ports.front_end import FrontEndSection


class ConsoleSettings(FrontEndSection):
    """Console: pages for browsers."""

    subject: ClassVar[str] = "Console"

    console: bool = Field(
        default=True,
        description="Serve pages for browsers at /console, to which `/` leads. Where the service has keys, people sign "
        "in with one.",
    )
