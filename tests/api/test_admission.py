"""Who may call: keys, scopes, acting for a user, and the keyless mode of one machine."""

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, open_session, set_stage
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.http.services import ApiConfig

KEYLESS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer tl_unknown_key"},
    {"Authorization": "Basic dXNlcjpwYXNz"},
    {"Authorization": "Bearer "},
    {"x-api-key": "tl_unknown_key"},
    {"x-api-key": "\u00e9t\u00e9"},
)


async def test_without_a_valid_key_nobody_gets_in(database: Database, subtests: pytest.Subtests) -> None:
    async with set_stage(database, KEYED).client() as client:
        for headers in KEYLESS:
            with subtests.test(str(headers)):
                response = await client.get("/v1/sessions", headers=httpx.Headers(headers, encoding="latin-1"))
                assert response.status_code == 401
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert response.json()["type"] == "/problems/not_authenticated"
                assert "tl_unknown_key" not in response.text


async def test_a_key_is_taken_in_either_header(database: Database) -> None:
    stage = set_stage(database, KEYED)
    secret = await stage.key("ada")
    styles = ({"x-api-key": secret}, {"Authorization": f"Bearer {secret}"}, {"Authorization": f"bearer {secret}"})

    async with stage.client() as client:
        answers = [await client.get("/v1/sessions", headers=headers) for headers in styles]

    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_a_revoked_key_is_refused(database: Database) -> None:
    stage = set_stage(database, KEYED)
    secret = await stage.key("ada")
    async with stage.client(key=secret) as client:
        before = await client.get("/v1/sessions")
        await database.keys.revoke(secret.split("_")[1])

        after = await client.get("/v1/sessions")

    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_key_that_may_only_read_changes_nothing(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada", Scope.READ)) as client:
        read = await client.get("/v1/sessions")
        written = await client.post("/v1/sessions", json={"agent": "assistant"})

    assert read.status_code == 200
    assert written.status_code == 403
    assert 'error="insufficient_scope"' in written.headers["www-authenticate"]


async def test_a_key_that_may_only_write_reads_nothing(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada", Scope.WRITE)) as client:
        response = await client.get("/v1/sessions")

    assert response.status_code == 403


async def test_a_key_with_act_as_serves_each_user_apart(database: Database) -> None:
    stage = set_stage(database, KEYED)
    secret = await stage.key("backend", *Scope)
    async with stage.client(key=secret, user="ada") as ada, stage.client(key=secret, user="bob") as bob:
        session = await open_session(ada)

        own, foreign = await ada.get(session), await bob.get(session)

    assert (own.status_code, foreign.status_code) == (200, 404)


async def test_acting_for_a_user_needs_the_scope(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada"), user="bob") as client:
        response = await client.get("/v1/sessions")

    assert response.status_code == 403


async def test_a_user_name_that_cannot_be_one_is_refused(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("backend", *Scope)) as client:
        names = [httpx.Headers({"On-Behalf-Of": name}, encoding="latin-1") for name in ("x" * 201, "\u00e9t\u00e9")]
        answers = [await client.get("/v1/sessions", headers=headers) for headers in names]

    assert [answer.status_code for answer in answers] == [422, 422]


@pytest.mark.parametrize(
    "headers", [[("On-Behalf-Of", "")], [("On-Behalf-Of", " ")], [("On-Behalf-Of", "ann"), ("On-Behalf-Of", "bob")]]
)
async def test_a_back_end_that_lost_its_users_name_is_not_taken_for_the_user(
    database: Database, headers: list[tuple[str, str]]
) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("backend", *Scope)) as client:
        response = await client.get("/v1/sessions", headers=httpx.Headers(headers))

    assert response.status_code == 422


async def test_local_mode_acts_as_local(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    async with stage.client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})
        history = (await client.get(f"{session}/messages")).json()["data"]

    assert history[0]["role"] == "user"
    assert await database.users.get("local") is not None


ELSEWHERE = (
    {"Host": "evil.example"},
    {"Host": "localhost.evil.example"},
    {"Host": "192.168.1.5:8000"},
    {"Host": ""},
    {"Host": "localhost", "Origin": "https://evil.example"},
    {"Host": "localhost", "Origin": "null"},
    {"Host": "localhost", "Origin": "http://localhost.evil.example"},
)
HERE = (
    {"Host": "localhost:8000"},
    {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:3000"},
    {"Host": "[::1]:8000", "Origin": "http://localhost:3000"},
    {"Host": "localhost", "Origin": "https://app.example"},
)


async def test_local_mode_serves_only_this_machine_and_listed_origins(
    database: Database, subtests: pytest.Subtests
) -> None:
    config = ApiConfig(version="0", is_local_mode=True, cors_origins=("https://app.example",))
    async with set_stage(database, config).client() as client:
        for headers in ELSEWHERE:
            with subtests.test(str(headers)):
                response = await client.get("/v1/sessions", headers=headers)
                assert response.status_code == 403
                assert response.json()["type"] == "/problems/origin_refused"
        for headers in HERE:
            with subtests.test(str(headers)):
                assert (await client.get("/v1/sessions", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("X-Forwarded-For", "203.0.113.7")], 403),
        ([("X-Forwarded-For", "127.0.0.1, 203.0.113.7")], 403),
        ([("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "203.0.113.7:4711")], 403),
        ([("X-Forwarded-For", "unknown")], 403),
        ([("X-Forwarded-For", "[2001:db8::7]:4711")], 403),
        ([("X-Real-IP", "2001:db8::7")], 403),
        ([("Forwarded", "for=203.0.113.7;proto=https")], 403),
        ([("X-Forwarded-For", "127.0.0.1, ::1, ::ffff:127.0.0.1, [::1]:4711, 127.0.0.1:4711")], 200),
        ([("X-Forwarded-For", "")], 200),
        ([("X-Real-IP", "127.0.0.1")], 200),
    ],
)
async def test_local_mode_does_not_serve_another_machine_through_a_proxy_of_this_one(
    database: Database, headers: list[tuple[str, str]], status: int
) -> None:
    stage = set_stage(database, LOCAL)
    async with stage.client() as client, stage.client(key=await stage.key("back end", *Scope)) as keyed:
        told = [await one.get("/v1/sessions", headers=headers) for one in (client, keyed)]

    assert [one.status_code for one in told] == [status, status]
    if status == 403:
        assert told[0].json()["type"] == "/problems/origin_refused"
        assert "throughline keys create" in told[0].json()["detail"]


LISTED = "http://localhost:5173"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8000", None, 201),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 201),
        ("localhost:8000", "http://LOCALHOST:8000", 201),
        ("localhost", "http://localhost", 201),
        ("[::1]:8000", "http://[::1]:8000", 201),
        ("127.0.0.1:8000", LISTED, 201),
        ("127.0.0.1:8000", "http://127.0.0.1:9999", 403),
        ("127.0.0.1:8000", "http://localhost:3000", 403),
        ("127.0.0.1:8000", "http://localhost:8000", 403),
        ("127.0.0.1:8000", "http://127.0.0.1", 403),
        ("127.0.0.1:8000", "http://user@127.0.0.1:8000", 403),
    ],
)
async def test_in_local_mode_a_page_of_another_port_writes_only_where_it_is_listed(
    database: Database, host: str, origin: str | None, status: int
) -> None:
    config = ApiConfig(version="0", is_local_mode=True, cors_origins=(LISTED,))
    headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
    async with set_stage(database, config).client() as client:
        written = await client.post("/v1/sessions", json={"agent": "assistant"}, headers=headers)
        read = await client.get("/v1/sessions", headers=headers)

    assert (written.status_code, read.status_code) == (status, 200)
    if status == 403:
        assert written.json()["type"] == "/problems/origin_refused"
        assert str(origin) in written.json()["detail"]


async def test_local_mode_cannot_act_for_others_and_refuses_wrong_keys(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    async with stage.client(user="bob") as bob, stage.client(key="tl_wrong") as wrong:
        acting, keyed = await bob.get("/v1/sessions"), await wrong.get("/v1/sessions")

    assert (acting.status_code, keyed.status_code) == (403, 401)


async def test_a_trusted_socket_needs_no_loopback_name(database: Database) -> None:
    async with set_stage(database, ApiConfig(version="0", trusted_socket=True)).client() as client:
        response = await client.get("/v1/sessions", headers={"Host": "api.sock"})

    assert response.status_code == 200


async def test_a_run_records_the_key_that_acted_for_its_user(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("backend", *Scope), user="ann") as client:
        session = await open_session(client)
        response = await client.post(f"{session}/messages", json={"content": "hi"}, headers={"Prefer": "respond-async"})

    assert response.status_code == 202, response.text
    run = response.json()["run"]
    assert run["author"] == "ann"
    assert run["actor"]
