"""The section `mcp_servers` of agent files: what it becomes, and what is refused."""

from pathlib import Path

import pytest

from throughline.agents.registry import AgentDefaults, load_agents
from throughline.domain.errors import AgentInvalid
from throughline.domain.tool_server import ClientCredentials, ToolServer

OAUTH = "{token_url: 'https://a/token', client_id: A, client_secret: B}"
DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="")


def test_servers_are_read_with_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        """
name: a
mcp_servers:
  files: {command: [mcp-files, /srv], env: {TOKEN: FILES_TOKEN, A: B}, tools: ["read_*"], needs_approval: ["*"]}
  web: {url: "https://mcp.example/mcp", headers: {Authorization: WEB_AUTHORIZATION}, timeout_seconds: 5}
"""
    )

    agent = load_agents([tmp_path], DEFAULTS).get("a")

    assert agent.mcp_servers == (
        ToolServer(
            "files",
            command=("mcp-files", "/srv"),
            variables=(("A", "B"), ("TOKEN", "FILES_TOKEN")),
            tools=("read_*",),
            needs_approval=("*",),
        ),
        ToolServer(
            "web",
            url="https://mcp.example/mcp",
            headers=(("Authorization", "WEB_AUTHORIZATION"),),
            timeout_seconds=5.0,
        ),
    )
    assert [agent.asks_approval(name) for name in ("files__read_text", "web__read", "read")] == [True, False, False]


@pytest.mark.parametrize(
    ("more", "resource"), [("", "http://a/mcp"), (", resource: ''", ""), (", resource: 'api://b'", "api://b")]
)
def test_client_credentials_are_read(tmp_path: Path, more: str, resource: str) -> None:
    oauth = f"{{token_url: 'https://a/token', client_id: A, client_secret: B, scopes: [read, 'a:b']{more}}}"
    (tmp_path / "a.yaml").write_text(f"name: a\nmcp_servers: {{web: {{url: 'http://a/mcp', oauth: {oauth}}}}}\n")

    (server,) = load_agents([tmp_path], DEFAULTS).get("a").mcp_servers

    assert server.oauth == ClientCredentials("https://a/token", "A", "B", ("read", "a:b"), resource)


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("{a: {}}", "mcp_servers.a: needs either command or url"),
        ("{a: {command: [x], url: 'http://a/mcp'}}", "mcp_servers.a: needs either command or url"),
        ("{a: {url: 'http://a/mcp', env: {A: B}}}", "has env, which only a program (command) can have"),
        ("{a: {command: [x], headers: {A: B}}}", "has headers, which only a server over HTTP (url) can have"),
        (f"{{a: {{command: [x], oauth: {OAUTH}}}}}", "has oauth, which only a server over HTTP (url) can have"),
        (
            f"{{a: {{url: 'http://a/mcp', headers: {{authorization: A}}, oauth: {OAUTH}}}}}",
            "has oauth and a header Authorization, of which only one can be sent",
        ),
        ("{a: {url: 'http://a/mcp', oauth: {token_url: 'http://a'}}}", "mcp_servers.a.oauth.client_id: missing"),
        (
            "{a: {url: 'http://a/mcp', oauth: {tokenurl: 'http://a'}}}",
            "oauth.tokenurl: no such field; did you mean token_url? allowed: ",
        ),
        ("{a: {url: 'http://a/mcp', oauth: sk-secret}}", "mcp_servers.a.oauth: must be a mapping of fields"),
        ("{a: {url: 'http://a/mcp', oauth: {token_url: a, client_id: A, client_secret: B}}}", "oauth.token_url"),
        ("{a: {url: 'http://a/mcp', oauth: {client_secret: 'sk-secret value'}}}", "oauth.client_secret"),
        (
            "{a: {url: 'http://a/mcp', oauth: {token_url: 'http://a', client_id: A, client_secret: B, scopes: [a b]}}}",
            "has characters that no scope may have, such as spaces: write each scope by itself",
        ),
        ("{A b: {command: [x]}}", "has the name 'A b'; a name matches"),
        ("{a: {url: 'ftp://a'}}", "mcp_servers.a.url"),
        ("{a: {command: ['']}}", "mcp_servers.a.command"),
        ('{a: {command: ["x\\0"]}}', "mcp_servers.a.command"),
        ("{a: {command: [x], env: {'A=B': C}}}", "has the name 'A=B', which is no name of an environment variable"),
        ("{a: {command: [x], env: {A: 'sk-secret value'}}}", "mcp_servers.a.env"),
        ("{a: {url: 'http://a/mcp', headers: {Mcp-Session-Id: B}}}", "which the protocol sets itself"),
        ("{a: {url: 'http://a/mcp', headers: {'A B': C}}}", "no name of an HTTP header"),
        ("{a: {command: [x], timeout_seconds: 0}}", "mcp_servers.a.timeout_seconds"),
        ("{a: {command: [x], args: [y]}}", "mcp_servers.a.args: no such field"),
        ("[a]", "mcp_servers"),
    ],
)
def test_a_wrong_server_is_refused(tmp_path: Path, servers: str, told: str) -> None:
    (tmp_path / "a.yaml").write_text(f"name: a\nmcp_servers: {servers}\n")

    with pytest.raises(AgentInvalid) as refused:
        load_agents([tmp_path], DEFAULTS)

    assert told in refused.value.detail
    assert "sk-secret" not in refused.value.detail
