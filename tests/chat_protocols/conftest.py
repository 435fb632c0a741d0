from collections.abc import Sequence

import pytest

from fakes.front_end_stages import keyed, stage
from throughline.ag_ui.front_end import AG_UI
from throughline.ai_sdk.front_end import AI_SDK
from throughline.http.app import FrontEnd
from throughline.langgraph_api.front_end import LANGGRAPH_API

__all__ = ["keyed", "stage"]


@pytest.fixture
def front_ends() -> Sequence[FrontEnd]:
    return AG_UI, AI_SDK, LANGGRAPH_API
