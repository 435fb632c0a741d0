"""What README, first steps and guides tell a reader to type or write: run against a real service, loaded, parsed."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from fakes.anthropic_double.double import AnthropicDouble
from fakes.pooler import environment_of
from fakes.programs import ROOT, environment_for_programs, fork_server_socket
from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.service_process import free_port, run_service
from throughline.agents.registry import AgentDefaults, load_agents

SHELL = frozenset({"sh", "bash"})
CHECKED = SHELL | {"python", "yaml", "json"}
NOT_RUN = re.compile(r"<!--\s*not run:?(.*?)-->", re.DOTALL)
RUN_FIRST = re.compile(r"<!--\s*run first:(.*?)-->", re.DOTALL)
TITLE = re.compile(r'\btitle="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page, or its hidden lines of shell.

    `title` is the name of the file to write `text` to, '' if there is none. `why_not_run` is the reason not to run the
    block, '' if the page gives none, None if the block is run.
    """

    page: str
    line: int
    language: str
    text: str
    title: str = ""
    why_not_run: str | None = None

    @property
    def name(self) -> str:
        """Where the block begins, as `page:line`."""
        return f"{self.page}:{self.line}"


def document_pages() -> list[Path]:
    """Return the pages that a reader follows with commands of their own: README, first steps, guides."""
    docs = ROOT / "docs"
    folders = (docs / "getting-started", docs / "guides")
    found = sorted(page for folder in folders for page in folder.rglob("*.md"))
    return [ROOT / "README.md", docs / "getting-started.md", *found]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that are checked, and its hidden lines of shell, in their order."""
    return read_blocks(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))


def read_blocks(page: str, text: str) -> list[Block]:
    """Return the blocks in the text of a page."""
    return list(_read(page, text))


def _read(page: str, text: str) -> Iterator[Block]:
    why_not_run: str | None = None
    for token in MarkdownIt().parse(text):
        line = (token.map or (0,))[0] + 1
        if token.type == "html_block":
            marked = NOT_RUN.search(token.content)
            why_not_run = marked[1].strip() if marked else None
            yield from (Block(page, line, "sh", found[1]) for found in RUN_FIRST.finditer(token.content))
            continue
        language, _, rest = token.info.strip().partition(" ")
        title = TITLE.search(rest)
        if token.type == "fence" and (language in CHECKED or title):
            yield Block(page, line, language, token.content, title[1] if title else "", why_not_run)
        why_not_run = None


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
CLIENT = ROOT / "tests" / "fakes" / "fork_client.py"

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


PAGES = [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in document_pages() if blocks_of(page)]
ANSWERS = {"docs/guides/overrides.md": ScriptStep('{"number": "T-1"}')}
"""What the double answers to the one call of a page that is not satisfied with any answer."""

CURL_COULD_NOT_CONNECT = 7
DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="")


@pytest.fixture
def page_settings(
    database_url: str, provider_double: ProviderDouble, anthropic_double: AnthropicDouble
) -> Mapping[str, str]:
    """Settings of a reader's machine: `offline` answers, and the doubles stand for OpenAI and Anthropic."""
    openai = {"OPENAI_BASE_URL": provider_double.url, "OPENAI_API_KEY": "test"}
    anthropic = {"ANTHROPIC_BASE_URL": anthropic_double.url, "ANTHROPIC_API_KEY": "test"}
    return {**environment_of(database_url), **openai, **anthropic}


def run_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.why_not_run is None]


def is_readable(block: Block, folder: Path) -> bool:
    """Parse JSON and YAML; load a mapping with a `name` as the file of an agent. Raises what the reader raises."""
    if block.language == "json":
        return bool(json.loads(block.text))
    name = yaml.safe_load(block.text).get("name")
    if name is None:
        return True  # a file of another program
    folder.mkdir()
    (folder / "agent.yaml").write_text(block.text)
    return load_agents([folder], DEFAULTS).get(name).name == str(name)


@pytest.fixture
def _needs(page: Path, request: pytest.FixtureRequest) -> None:
    """Skip a page that sets a model of embeddings where the server has no pgvector."""
    if any("EMBEDDING_MODEL=" in block.text for block in run_blocks(page)):
        request.getfixturevalue("pgvector")


@pytest.mark.slow
@pytest.mark.usefixtures("_needs")
@pytest.mark.parametrize("page", PAGES)
async def test_what_a_page_says_to_type_works(
    page: Path, folder: Path, page_settings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    blocks = run_blocks(page)
    if not any(block.language in SHELL | {"python"} for block in blocks):
        return
    if step := ANSWERS.get(page.relative_to(ROOT).as_posix()):
        provider_double.script(step)
    async with run_service(folder, page_settings) as service:
        assert service.client.base_url.port is not None
        own = PageRun(folder / "project", service.client.base_url.port, provider_double.url)
        own.prepare()
        (own.folder / f"service-{own.port}.pid").write_text(str(service.process.pid))
        code, printed = await own.play(blocks, page_settings)

    print(printed)  # noqa: T201  # `pytest -rP` shows it
    assert code == 0, printed


@pytest.mark.parametrize("page", PAGES)
def test_agents_and_json_on_a_page_can_be_read(page: Path, tmp_path: Path) -> None:
    data = [block for block in run_blocks(page) if block.language in {"yaml", "json"}]

    assert [block.name for block in data if not is_readable(block, tmp_path / str(block.line))] == []


def test_a_block_that_is_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for page in document_pages() for block in blocks_of(page)]
    left = [block for block in blocks if block.why_not_run is not None]

    with capsys.disabled():
        print_left(len(blocks), left)
    assert [block.name for block in left if not block.why_not_run] == []


SHOWN = {"console", "text", "js", "tsx", "nginx", "env", "dotenv", "ini"}
"""Languages of blocks that are output, or belong to a program that is not run here."""

PAGE = """
<!-- not run: why -->
```sh
exit 1
```

<!-- run first:
A=1
-->

```ini title="a.env"
B=2
```
```sh
test $A = 1 && grep -q B=2 a.env && curl -s http://127.0.0.1:1/
```
"""


def test_every_block_has_a_language_that_is_known_here() -> None:
    fences = [
        (page.name, token.info.strip().partition(" ")[0])
        for page in document_pages()
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8"))
        if token.type in {"fence", "code_block"}
    ]

    assert [fence for fence in fences if fence[1] not in CHECKED | SHOWN] == []


def test_blocks_are_read_with_their_marks_and_titles() -> None:
    blocks = read_blocks("page.md", PAGE)

    assert [(block.line, block.why_not_run, block.title) for block in blocks] == [
        (3, "why", ""),
        (7, None, ""),
        (11, None, "a.env"),
        (14, None, ""),
    ]


@pytest.mark.parametrize(("text", "code"), [("true", 0), ("false\ntrue", 1), ("false | cat", 1), ("echo $NOT_SET", 1)])
async def test_a_page_fails_with_its_first_failing_command(folder: Path, text: str, code: int) -> None:
    own = PageRun(folder / "project", 1, "")
    own.prepare()

    ended, printed = await own.play([Block("page.md", 3, "sh", f"{text}\n")], {})

    assert (ended, "=== page.md:3" in printed) == (code, True)


async def test_blocks_of_a_page_share_a_folder_and_variables(folder: Path) -> None:
    own = PageRun(folder / "project", 1, "")
    own.prepare()

    ended, _ = await own.play([block for block in read_blocks("page.md", PAGE) if block.why_not_run is None], {})

    assert ended == CURL_COULD_NOT_CONNECT


def print_left(count: int, left: Sequence[Block]) -> None:
    lines = "".join(f"\n  {block.name}: {block.why_not_run}" for block in left)
    print(f"\n{len(left)} of {count} code blocks are not run:{lines}")  # noqa: T201  # for the reader of the run
