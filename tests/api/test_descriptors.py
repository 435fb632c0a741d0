import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from app.api.http.server import allow_connections
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allowed = allow_connections(wanted)
print(allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "raised_to"),
    [(900, 900, 500, 500, 900), (300, 900, 500, 500, 756), (300, 600, 500, 344, 600), (100, 100, 500, 50, 100)],
)
def test_connections_are_bounded_by_the_descriptors_there_may_be(
    soft: int, hard: int, wanted: int, allowed: int, raised_to: int
) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= hard

    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, wanted))]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert told.splitlines()[-1] == f"{allowed} {raised_to}"
