"""Certificates of tests: none, as no test speaks TLS.

Every HTTP client reads all that the machine trusts when it is made, which takes 10 to 20 ms of processor time, and a
test makes several clients: a model provider's SDK alone makes two for a model.
"""

import os
from collections.abc import Generator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Have OpenSSL look up certificates in an empty folder, in this process and those it starts."""
    before = os.environ.copy()
    os.environ["SSL_CERT_DIR"] = str(tmp_path_factory.mktemp("certificates"))
    os.environ.pop("SSL_CERT_FILE", None)
    yield
    for name in ("SSL_CERT_DIR", "SSL_CERT_FILE"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
