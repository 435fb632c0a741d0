import importlib

import pytest


@pytest.fixture(scope="session", autouse=True)
def _provider_packages() -> None:
    """Imports what takes seconds, which no single test should pay for."""
    for package in ("langchain_openai", "langchain_anthropic", "langchain_google_genai"):
        importlib.import_module(package)
