"""A page's blocks as one shell script, in a folder where its commands find what a checkout of the project has.

`make run` replaces the page's service by one with the settings before it. The page's addresses and models become those
of this run.
"""

import asyncio
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fakes.document_blocks import SHELL, Block
from fakes.programs import ROOT, environment_for_programs, fork_server_socket
from fakes.service_process import free_port

LINKED = ("app", "docs", "tests", "README.md")
"""What commands of pages name in the folder of the project."""

SHIMS = {
    ".venv/bin/python": """#!/bin/sh
if [ -f "$1" ]; then exec {client} script "$@"; else exec {python} "$@"; fi
""",
    ".venv/bin/throughline": """#!/bin/sh
if [ "$1" = chat ] && [ ! -p /dev/stdin ]; then
    printf 'Hello!\\n/context\\n' | {client} throughline "$@"
else
    exec {client} throughline "$@"
fi
""",
    ".venv/bin/make": """#!/bin/sh
[ "$1" = run ] || exec /usr/bin/make -nC {root} "$@" >/dev/null
cd {folder}
port=${{PORT:-{port}}}
kill -9 "$(cat service-$port.pid)" 2>/dev/null
.venv/bin/throughline serve --port $port >>made.log 2>&1 </dev/null &
echo $! >service-$port.pid
until curl -sf http://127.0.0.1:$port/health/ready >/dev/null; do
    kill -0 $! 2>/dev/null || {{ tail -n 20 made.log; exit 1; }}
    sleep 0.05
done
""",
}
CLIENT = Path(__file__).with_name("fork_client.py")

PAGE_SECONDS = 120
TIMED_OUT = 124
"""The exit code of a page that hangs, as that of `timeout`."""

PRELUDE = """set -euo pipefail
curl() {
    case "$*" in *http_code*) command curl "$@" ;; *) command curl --fail-with-body "$@" ;; esac
}
"""
"""A refused request fails, unless the page prints the status."""


@dataclass(frozen=True, slots=True)
class PageRun:
    """Where a page's commands run: the folder, the port of its service, the address of the provider's double."""

    folder: Path
    port: int
    double_url: str
    backend_port: int = field(default_factory=free_port)

    def localize(self, text: str) -> str:
        """Return the text with the addresses, ports and models of this run in place of the page's."""
        for written, here in {
            r"http://127\.0\.0\.1:(8080|8001|11434)/v1": self.double_url,
            r"127\.0\.0\.1:8000": f"127.0.0.1:{self.port}",
            r"127\.0\.0\.1:9000": f"127.0.0.1:{self.backend_port}",
            r"\bPORT=8123\b": f"PORT={free_port()}",
            r"\bopenai:gpt-4o-mini\b": "openai:double-16k-cl100k",
            r"\bopenai:gpt-4o\b": "openai:double-128k-cl100k",
            r"\bopenai:(my-model|llama3\.1:8b|Qwen/Qwen3-32B)(?=\s)": "openai:double-32k-cl100k",
            r"\banthropic:claude-[\w-]+": "anthropic:double-128k-cl100k",
        }.items():
            text = re.sub(written, here, text)
        return text

    def prepare(self) -> None:
        """Lay out the folder."""
        (self.folder / ".venv" / "bin").mkdir(parents=True)
        for name in LINKED:
            (self.folder / name).symlink_to(ROOT / name)
        for name, text in SHIMS.items():
            shim = self.folder / name
            client = f"{sys.executable} -ISE {CLIENT} {fork_server_socket()}"
            places = {"python": sys.executable, "client": client, "root": ROOT, "folder": self.folder}
            shim.write_text(text.format(**places, port=self.port))
            shim.chmod(0o755)

    async def play(self, blocks: Sequence[Block], environment: Mapping[str, str]) -> tuple[int, str]:
        """Run the blocks; return the exit code and the end of what they printed, each behind its line of the page.

        The service that the last `make run` has started is killed too: it belongs to the script's session.
        """
        (self.folder / "page.sh").write_text(PRELUDE + "\n".join(map(self._step, blocks)))
        own = environment_for_programs() | dict(environment)
        own |= {"THROUGHLINE_URL": f"http://127.0.0.1:{self.port}", "BACKEND_PORT": str(self.backend_port)}
        own["PATH"] = f"{self.folder / '.venv' / 'bin'}:{own['PATH']}"
        printed = self.folder / "printed.txt"
        with printed.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *("/bin/bash", "page.sh"), cwd=self.folder, env=own, stdin=DEVNULL, stdout=output, stderr=STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                code = await process.wait()
        except TimeoutError:
            code = TIMED_OUT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return code, printed.read_text("utf-8", "replace")[-6000:]

    def _step(self, block: Block) -> str:
        text = self.localize(block.text)
        head = f"echo '=== {block.name}'\n"
        if block.title:
            return head + _write(block.title, text)
        if block.language in SHELL:
            return head + text
        if block.language == "python":
            return head + _write(f"block-{block.line}.py", text) + f".venv/bin/python block-{block.line}.py\n"
        return head


def _write(name: str, text: str) -> str:
    return f"mkdir -p {shlex.quote(str(Path(name).parent))}\nprintf %s {shlex.quote(text)} >{shlex.quote(name)}\n"
