"""The console script: the command line. What is behind a command is loaded when it runs: all of it takes seconds."""

import pkgutil
from collections.abc import Callable
from typing import Any

from throughline.cli.parts import Parts
from throughline.cli.root import throughline


def main() -> None:
    """Run the command line."""
    throughline(
        obj=Parts(
            serve=_loaded_late("throughline.assembly.programs:serve"),
            worker=_loaded_late("throughline.assembly.programs:work"),
            slack=_loaded_late("throughline.assembly.programs:take_part_in_slack"),
            slack_manifest=_loaded_late("throughline.slack.manifest:manifest"),
            slack_link_code=_loaded_late("throughline.assembly.database:slack_link_code"),
            slack_unlink=_loaded_late("throughline.assembly.database:slack_unlink"),
            open_local_service=_loaded_late("throughline.assembly.programs:open_local_service"),
            standard_input_lines=_loaded_late("throughline.cli.lines:standard_input_lines"),
            keys=_loaded_late("throughline.assembly.database:open_keys"),
            upgrade_database=_loaded_late("throughline.assembly.database:upgrade_database"),
            database_status=_loaded_late("throughline.assembly.database:database_status"),
            database_address=_loaded_late("throughline.assembly.database:database_address"),
            service_status=_loaded_late("throughline.assembly.database:service_status"),
        )
    )


def _loaded_late(place: str) -> Callable[..., Any]:  # Parts says what each of them takes and gives
    """Return the function at `module:name`, imported when it is called."""

    def call(*arguments: object) -> object:
        return pkgutil.resolve_name(place)(*arguments)

    return call
