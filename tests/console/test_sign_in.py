"""Signing in with a key or a token: the cookie, its end, and what pages of other origins can do with it: nothing."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import ApiStage
from fakes.raw_sql import run_sql
from throughline.console import sign_in
from throughline.domain.keys import Scope
from throughline.http.auth import SIGN_IN_COOKIE

OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(autouse=True)
def _no_failed_tries() -> None:
    sign_in._failed.clear()  # noqa: SLF001  # kept for the whole process


@pytest.fixture
async def browser(keyed: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with keyed.client() as client:
        yield client


async def enter(browser: httpx.AsyncClient, secret: str, after: str = "") -> httpx.Response:
    return await browser.post("/console/sign-in", data={"key": secret, "next": after}, headers=OWN)


async def test_a_page_leads_to_the_sign_in_and_the_sign_in_back(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    asked = await browser.get("/console/sessions?q=a%26b")
    shown = await browser.get("/console/sign-in?next=sessions%3Fq%3Da%2526b")
    entered = await enter(browser, await keyed.key("anna"), "sessions?q=a%26b")

    assert (asked.status_code, asked.headers["location"]) == (303, "./sign-in?next=sessions%3Fq%3Da%2526b")
    assert 'value="sessions?q=a%26b"' in shown.text
    assert (entered.status_code, entered.headers["location"]) == (303, "./sessions?q=a%26b")
    assert (await browser.get("/console/sessions")).status_code == 200


async def test_the_cookie_is_for_no_script_and_no_other_site(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    key = await keyed.key("anna")
    plain = (await enter(browser, key)).headers["set-cookie"]
    encrypted = await browser.post("/console/sign-in", data={"key": key}, headers={**OWN, "X-Forwarded-Proto": "https"})

    assert key not in plain
    assert "HttpOnly" in plain
    assert "SameSite=strict" in plain
    assert "Secure" not in plain
    assert "Secure" in encrypted.headers["set-cookie"]


async def test_a_sign_in_reaches_what_its_key_does(
    keyed: ApiStage, browser: httpx.AsyncClient, database_url: str
) -> None:
    key = await keyed.key("anna", Scope.READ, Scope.OPERATE, Scope.ACT_AS)
    await enter(browser, key)

    assert (await browser.get("/v1/memories")).status_code == 200
    assert (await browser.get("/v1/usage?all_users=true")).status_code == 200
    assert (await browser.post("/v1/memories", json={"text": "x"}, headers=OWN)).status_code == 403
    assert (await browser.get("/v1/memories", headers={"On-Behalf-Of": "ben"})).status_code == 403
    stored = str(await run_sql(database_url, "select access_tokens::text from access_tokens"))
    assert browser.cookies[SIGN_IN_COOKIE] not in stored


async def test_it_ends_with_the_key_and_by_signing_out(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    await enter(browser, await keyed.key("anna"))
    secret = browser.cookies[SIGN_IN_COOKIE]
    out = await browser.post("/console/sign-out", headers=OWN)

    assert (out.status_code, out.headers["location"]) == (303, "./sign-in")
    browser.cookies.set(SIGN_IN_COOKIE, secret)
    assert (await browser.get("/console/sessions")).status_code == 303

    browser.cookies.clear()
    await enter(browser, await keyed.key("ben"))
    assert (await browser.get("/console/sessions")).status_code == 200
    (key,) = [key for key in await keyed.database.keys.list() if key.user_name == "ben"]
    await keyed.database.keys.revoke(key.prefix)
    assert (await browser.get("/console/sessions")).status_code == 303


async def test_a_part_of_a_page_makes_its_page_go_to_the_sign_in(browser: httpx.AsyncClient) -> None:
    part = await browser.get("/console/sessions", headers={"HX-Request": "true"})

    assert (part.status_code, part.headers["hx-redirect"]) == (204, "./sign-in")


@pytest.mark.parametrize("secret", ["", "tl_wrong", "tlt_wrong", "x" * 3_000, "<script>alert(1)</script>"])
async def test_a_wrong_key_is_refused_with_a_reason(browser: httpx.AsyncClient, secret: str) -> None:
    refused = await enter(browser, secret)

    assert refused.status_code == 401
    assert 'role="alert"' in refused.text
    assert "<script>alert" not in refused.text
    assert "set-cookie" not in refused.headers


async def test_failed_tries_are_limited_but_keep_nobody_out(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    for _ in range(sign_in.MOST_TRIES):
        assert "unknown" in (await enter(browser, "tl_wrong")).text

    refused = await enter(browser, "tl_wrong")
    entered = await enter(browser, await keyed.key("anna"))

    assert refused.status_code == 401
    assert "Too many failed tries" in refused.text
    assert entered.status_code == 303


async def test_a_local_service_ignores_the_cookie_of_another_one(client: httpx.AsyncClient) -> None:
    client.cookies.set(SIGN_IN_COOKIE, "tlt_of_another_service")

    assert (await client.get("/console/sessions")).status_code == 200
    assert (await client.get("/v1/sessions")).status_code == 200


async def test_services_on_two_ports_have_cookies_of_their_own(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    host = {"Host": "localhost:8001"}
    entered = await browser.post("/console/sign-in", data={"key": await keyed.key("anna")}, headers={**OWN, **host})

    assert entered.headers["set-cookie"].startswith(f"{SIGN_IN_COOKIE}_8001=")
    assert (await browser.get("/console/sessions", headers=host)).status_code == 200
    assert (await browser.get("/console/sessions")).status_code == 303


@pytest.mark.parametrize(
    "after", ["//evil.example", "https://evil.example", "/\\evil.example", "../../x", "\\x", "a\nb", "//[", "http://[x"]
)
async def test_the_sign_in_leads_only_to_pages_of_the_console(
    keyed: ApiStage, browser: httpx.AsyncClient, after: str
) -> None:
    entered = await enter(browser, await keyed.key("anna"), after)

    assert entered.headers["location"] == "./sessions"


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_origin_changes_nothing(
    keyed: ApiStage, browser: httpx.AsyncClient, headers: dict[str, str], subtests: pytest.Subtests
) -> None:
    await enter(browser, await keyed.key("anna"))
    session = (await browser.post("/v1/sessions", json={"agent": "assistant"}, headers=OWN)).json()
    path = f"/v1/sessions/{session['id']}"
    changes = [
        ("POST", "/v1/sessions", {"agent": "assistant"}),
        ("POST", f"{path}/messages", {"content": "x"}),
        ("PATCH", path, {"title": "x"}),
        ("DELETE", path, None),
        ("POST", "/v1/memories", {"text": "x"}),
        ("POST", "/v1/tokens", {}),
    ]
    for method, address, body in changes:
        with subtests.test(f"{method} {address}"):
            refused = await browser.request(method, address, json=body, headers=headers)
            assert (refused.status_code, refused.json()["type"]) == (403, "/problems/origin_refused")
    for address in ("sign-in", "sign-out"):
        with subtests.test(address):
            assert (await browser.post(f"/console/{address}", headers=headers)).status_code == 403
    assert len((await browser.get("/v1/sessions")).json()["data"]) == 1


async def test_a_key_in_a_header_wins_over_the_cookie(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    await enter(browser, await keyed.key("anna"))
    other = {"Authorization": f"Bearer {await keyed.key('ben')}"}

    made = await browser.post("/v1/sessions", json={"agent": "assistant"}, headers=other)

    assert made.status_code == 201
    assert (await browser.get("/v1/sessions")).json()["data"] == []


async def test_an_access_token_signs_in_with_its_limits(keyed: ApiStage, browser: httpx.AsyncClient) -> None:
    async with keyed.client(key=await keyed.key("anna")) as program:
        first, second = [(await program.post("/v1/sessions", json={"agent": "assistant"})).json()["id"] for _ in "ab"]
        token = (await program.post("/v1/tokens", json={"session_ids": [first]})).json()["token"]
    await enter(browser, token)

    assert (await browser.get(f"/console/sessions/{first}")).status_code == 200
    assert (await browser.get(f"/console/sessions/{second}")).status_code == 404
    assert (await browser.get("/console/sessions")).status_code == 403
