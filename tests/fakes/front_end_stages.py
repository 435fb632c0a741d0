"""Fixtures of the application with the front ends that a folder's fixture `front_ends` returns beside REST."""

from collections.abc import Sequence

import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, set_stage
from throughline.db.database import Database
from throughline.http.app import FrontEnd


@pytest.fixture
def stage(database: Database, front_ends: Sequence[FrontEnd]) -> ApiStage:
    """Return the application without keys, as `make run` serves it."""
    return set_stage(database, LOCAL).with_front_ends(LOCAL, *front_ends)


@pytest.fixture
def keyed(database: Database, front_ends: Sequence[FrontEnd]) -> ApiStage:
    """Return the application with keys."""
    return set_stage(database, KEYED).with_front_ends(KEYED, *front_ends)
