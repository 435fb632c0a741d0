import importlib

import pytest


@pytest.fixture(scope="session", autouse=True)
def _provider_packages() -> None:
    """Imports what takes seconds: no single test pays for it, and no process that runs none of these tests does."""
    for package in ("langchain_openai", "langchain_anthropic", "langchain_google_genai"):
        importlib.import_module(package)
