import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from app.api.http.server import limit_connections
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
limits = limit_connections(wanted)
print(limits.max_connections, limits.reserve, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "reserve", "raised_to"),
    [
        (900, 900, 500, 500, 100, 900),
        (300, 900, 500, 500, 100, 856),
        (300, 700, 500, 344, 100, 700),
        (200, 200, 500, 75, 25, 200),
        (100, 100, 20, 20, 12, 100),
    ],
)
def test_connections_and_their_reserve_are_bounded_by_the_descriptors_there_may_be(
    soft: int, hard: int, wanted: int, allowed: int, reserve: int, raised_to: int
) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= hard

    command = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, wanted))]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert told.splitlines()[-1] == f"{allowed} {reserve} {raised_to}"
