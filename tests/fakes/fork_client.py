"""A command of a shell that the fork server runs: `fork_client.py SOCKET (script FILE | throughline) ARGUMENTS…`.

It has the shell's input, output, environment and folder, ends with the command's exit code, and costs milliseconds. If
it is killed, the fork server kills the command. Nothing of ours is imported: it runs without site packages.
"""

import json
import os
import select
import socket
import sys
from typing import TextIO


def main() -> int:
    """Return the exit code of the command."""
    path, kind, *arguments = sys.argv[1:]
    script = os.path.abspath(arguments.pop(0)) if kind == "script" else None  # noqa: PTH100  # imports take time
    streams = {name: f"/proc/{os.getpid()}/fd/{number}" for number, name in enumerate(("typed", "log", "error_output"))}
    request = {
        "module": "throughline.main",
        "script": script,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109  # the same
        **streams,
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        lines = connection.makefile("rw")
        pid = _ask(lines, request)
        select.select([os.pidfd_open(pid)], [], [])
        return _ask(lines, {"reap": pid})


def _ask(lines: TextIO, request: object) -> int:
    lines.write(json.dumps(request) + "\n")
    lines.flush()
    return int(lines.readline())


if __name__ == "__main__":
    sys.exit(main())
