"""Jobs that were put off are found soon: nobody is notified when their time has come."""

from datetime import timedelta

import pytest

from throughline.db.jobs import taking


@pytest.fixture(autouse=True)
def _looks_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "POLL", timedelta(seconds=0.2))
