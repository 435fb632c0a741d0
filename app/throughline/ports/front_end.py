"""What a front end tells of itself to be put together with the service.

The package of a front end has a value `PARTS`; `assembly/front_ends.py` reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndParts:
    """The parts of a front end, each as `module:name` below its package, '' for those that it has not.

    They are imported when they are needed, because a command that prints its help should not load a web framework.

    - `routes`: an http.app.FrontEnd, whose routes `throughline serve` has.
    - `endpoint`: a function that opens an http.app.Endpoint beside these routes.
    - `program`: an http.app.Program, which runs the front end alone.
    - `command`: its click command.
    - `storage`: a db.front_end_storage.FrontEndStorage. The tables are those that its module imports.
    - `settings`: a FrontEndSection.
    """

    routes: str = ""
    endpoint: str = ""
    program: str = ""
    command: str = ""
    storage: str = ""
    settings: str = ""


class FrontEndSection(BaseModel):
    """Base class of a front end's settings, which stand among all others under the title `subject`."""

    model_config = ConfigDict(defer_build=True, frozen=True)
    subject: ClassVar[str]

    def needed_agents(self) -> Mapping[str, str]:
        """Return the agents without which the front end cannot be served, by the name of the setting."""
        return {}
