"""What packages keep private and the service uses: read in the versions that are named here, and there still."""

import importlib
import inspect
from importlib.metadata import version
from typing import Any

import pytest

LANGCHAIN = ("langchain-core", "1.7.2")
OPENAI = ("langchain-openai", "1.7.3")
GOOGLE = ("google-genai", "2.34.0")
UVICORN = ("uvicorn", "0.54.0")
CHAT = "langchain_core.language_models.chat_models:BaseChatModel."
WIRE = "langchain_openai.chat_models.base:BaseChatOpenAI."
HTTP = "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol"
CYCLE = "uvicorn.protocols.http.httptools_impl:RequestResponseCycle"
SOCKET = "uvicorn.protocols.websockets.websockets_sansio_impl:WebSocketsSansIOProtocol"

CALLED = (
    (LANGCHAIN, f"{CHAT}_should_stream", "(self, *, async_api, run_manager, **kwargs)"),
    (LANGCHAIN, f"{CHAT}_astream", "(self, messages, stop, run_manager, **kwargs)"),
    (LANGCHAIN, f"{CHAT}_agenerate", "(self, messages, stop, run_manager, **kwargs)"),
    (LANGCHAIN, "langchain_core.utils.json:parse_partial_json", "(s, *, strict)"),
    (OPENAI, f"{WIRE}_get_request_payload", "(self, input_, *, stop, **kwargs)"),
    (OPENAI, f"{WIRE}_convert_input", "(self, model_input)"),
    (
        OPENAI,
        f"{WIRE}_convert_chunk_to_generation_chunk",
        "(self, chunk, default_chunk_class, base_generation_info)",
    ),
    (
        ("langchain-anthropic", "1.7.7"),
        "langchain_anthropic.chat_models:ChatAnthropic._make_message_chunk_from_anthropic_event",
        "(self, event, *, stream_usage, coerce_content_to_string, block_start_event)",
    ),
    (UVICORN, f"{HTTP}.__init__", "(self, config, server_state, app_state, _loop)"),
    (UVICORN, f"{HTTP}._should_upgrade", "(self)"),
    (UVICORN, f"{HTTP}._unsupported_upgrade_warning", "(self)"),
    (UVICORN, f"{HTTP}.send_400_response", "(self, msg)"),
    (UVICORN, f"{HTTP}.shutdown", "(self)"),
    (UVICORN, f"{SOCKET}.keepalive_timeout", "(self)"),
    (UVICORN, f"{SOCKET}.handle_parser_exception", "(self)"),
)
"""Functions that the service calls, replaces or extends: the package and the version, the function, its parameters."""

HELD = (
    (OPENAI, WIRE.rstrip("."), ("root_async_client", "http_async_client")),
    (("langchain-google-genai", "4.4.2"), "google.genai:Client", ("_api_client",)),
    (GOOGLE, "google.genai._api_client:BaseApiClient", ("_http_options", "_async_httpx_client", "httpx_async_client")),
    (UVICORN, HTTP, ("pipeline", "cycle", "parser", "url", "headers", "flow", "connections", "app_state")),
    (UVICORN, CYCLE, ("keep_alive", "response_started", "response_complete", "more_body", "disconnected")),
    (UVICORN, SOCKET, ("conn", "handshake_initiated", "transport")),
    (("asyncpg", "0.32.0"), "asyncpg.connection:Connection", ("_server_caps",)),
    (("asyncpg", "0.32.0"), "asyncpg.connection:_detect_server_capabilities", ("jit",)),
)
"""Classes whose attributes the service reads or sets."""


@pytest.mark.parametrize(("package", "name", "parameters"), CALLED)
def test_a_private_function_takes_what_it_took(package: tuple[str, str], name: str, parameters: str) -> None:
    found = inspect.signature(_find(name)).replace(return_annotation=inspect.Signature.empty)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]

    assert str(found.replace(parameters=bare)) == parameters, _told(package, name)


@pytest.mark.parametrize(("package", "name", "attributes"), HELD)
def test_a_private_attribute_is_where_it_was(package: tuple[str, str], name: str, attributes: tuple[str, ...]) -> None:
    source = inspect.getsource(_find(name))

    assert [attribute for attribute in attributes if attribute not in source] == [], _told(package, name)


def _find(name: str) -> Any:  # noqa: ANN401  # a function or a class of a package
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    return found


def _told(package: tuple[str, str], name: str) -> str:
    return f"{name} was read in {package[0]} {package[1]}, and {version(package[0])} is installed: read it again"
