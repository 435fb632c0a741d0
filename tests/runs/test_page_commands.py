"""What README, first steps and guides tell a reader to type or write: run against a real service, loaded, parsed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from fakes.anthropic_double.double import AnthropicDouble
from fakes.document_blocks import CHECKED, SHELL, Block, blocks_of, document_pages, read_blocks
from fakes.page_script import PageRun
from fakes.pooler import environment_of
from fakes.programs import ROOT
from fakes.provider_double import ProviderDouble, ScriptStep
from fakes.service_process import run_service
from throughline.agents.registry import AgentDefaults, load_agents

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


@pytest.mark.slow
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


SHOWN = {"console", "text", "js", "nginx", "env", "dotenv", "ini"}
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
