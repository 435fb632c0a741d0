from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fakes.memory_folder import memory_folder


@pytest.fixture
def folder() -> Generator[Path]:
    """A short path, for a unix socket lies in it, that the server's account may pass through."""
    with TemporaryDirectory(prefix="tl-", dir=memory_folder(), ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)
