"""Preflights of browsers: refused with the setting to set unless the page's origin is listed."""

import pytest

from fakes.api_stage import set_stage
from throughline.db.database import Database
from throughline.http.services import ApiConfig

ORIGIN = "https://app.example"
PREFLIGHT = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}


@pytest.mark.parametrize("listed", [(), ("https://other.example",)])
async def test_a_preflight_of_an_origin_that_is_not_listed_says_which_setting_to_set(
    database: Database, listed: tuple[str, ...]
) -> None:
    config = ApiConfig(version="0", cors_origins=listed)
    async with set_stage(database, config).client() as client:
        response = await client.options("/v1/sessions", headers=PREFLIGHT)
        sandboxed = await client.options("/v1/sessions", headers={**PREFLIGHT, "Origin": "null"})
        plain = await client.options("/v1/sessions", headers={"Origin": ORIGIN})

    assert (response.status_code, response.json()["type"]) == (403, "/problems/origin_refused")
    assert f"CORS_ORIGINS={ORIGIN}" in response.json()["detail"]
    assert "access-control-allow-origin" not in response.headers
    assert (sandboxed.status_code, "has no origin" in sandboxed.json()["detail"]) == (403, True)
    assert plain.status_code == 405


@pytest.mark.parametrize("listed", ["*", ORIGIN])
async def test_a_preflight_of_a_listed_origin_is_answered(database: Database, listed: str) -> None:
    async with set_stage(database, ApiConfig(version="0", cors_origins=(listed,))).client() as client:
        response = await client.options("/v1/sessions", headers=PREFLIGHT)

    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, listed)
