"""What the command line loads late is named as text: the names must be there, and take what Parts says."""

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import throughline.main

PLACES = re.findall(r'(\w+)=_loaded_late\("([\w.:]+)"\)', Path(throughline.main.__file__).read_text("utf-8"))
ARGUMENTS = {"slack_manifest": 2, "slack_link_code": 2, "slack_unlink": 2, "standard_input_lines": 0}
"""How many arguments each part takes, where it is not one."""


def test_every_part_is_loaded_late() -> None:
    assert len(PLACES) == 13


@pytest.mark.parametrize(("part", "place"), PLACES)
def test_a_part_that_is_loaded_late_is_there(part: str, place: str) -> None:
    parameters = inspect.signature(pkgutil.resolve_name(place)).parameters

    assert len(parameters) == ARGUMENTS.get(part, 1)
