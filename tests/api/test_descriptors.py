import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from throughline.http.server import limit_connections
for case in sys.argv[1:]:
    soft, hard, wanted = map(int, case.split())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = limit_connections(wanted)
    print("told", limits.max_connections, limits.reserve, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
HIGHEST = 900


@pytest.mark.process
def test_connections_and_their_reserve_are_bounded_by_the_descriptors_there_may_be() -> None:
    """One process for all: what it may have only ever becomes less."""
    bounded = {  # soft and hard limit, connections wanted: connections allowed, reserve, soft limit raised to
        f"{HIGHEST} {HIGHEST} 500": "500 100 900",
        f"300 {HIGHEST} 500": "500 100 856",
        "300 700 500": "344 100 700",
        "200 200 500": "75 25 200",
        "100 100 20": "20 12 100",
    }
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= HIGHEST

    shown = subprocess.run([sys.executable, "-c", PROGRAM, *bounded], check=True, capture_output=True, text=True).stdout

    told = [line.removeprefix("told ") for line in shown.splitlines() if line.startswith("told ")]
    assert dict(zip(bounded, told, strict=True)) == bounded
