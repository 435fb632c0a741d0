import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from house.tree import ROOT, name_of, own_files, python_files
from scripts.reference.made_files import made_files
from scripts.reference.settings import ALL_SECTIONS, PAGES
from throughline.assembly.env_file import PROGRAM_SETTINGS
from throughline.cli.chat.slash_commands import COMMANDS
from throughline.llm.classify_error import known_answers

DOCS = ROOT / "docs"
MOST_LINES, MOST_LINES_OF_A_PAGE = 200, 150
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*/(?:[a-z_]+\.py)?|[a-z_]+\.py)`")
"""A file or package as our documents name it: `turn/take_turn.py`, `turn/`, and `take_turn.py` in a told folder."""
DATA = {".jsonl", ".tiktoken", ".lock"}
RECORDED = "benchmarks/data/*/*"
"""Others' words, kept as they were: they link and name folders where they came from."""

TRACES = [
    re.compile("/" + "work/"),
    re.compile(r"(?<!\w)/" + "root/"),
    re.compile(r"(?<!\w)/" + r"home/\w+/"),
    re.compile("https?://[^ ]*/" + r"simple\b"),
    re.compile("python" + r"hosted\.org"),
    re.compile("[a-z]+:[^ /@]+@[a-z0-9.-]+:?[0-9]*/(api|repository|pypi)" + "/"),
]


def test_links_in_our_documents_lead_somewhere() -> None:
    broken = [
        f"{name_of(document)}: {target}"
        for document in _documents()
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if not target.startswith(("http://", "https://", "#", "mailto:"))
        and not (document.parent / target.partition("#")[0]).exists()
    ]

    assert broken == []


def test_links_to_anchors_lead_to_a_heading() -> None:
    broken = [
        f"{name_of(document)}: {target}"
        for document in _documents()
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        for path, has_anchor, anchor in [target.partition("#")]
        if has_anchor
        and not path.startswith(("http://", "https://"))
        and anchor not in _anchors((document.parent / path).resolve() if path else document)
    ]

    assert broken == []


def test_the_readme_of_the_package_has_no_link_that_leads_nowhere() -> None:
    shipped = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    links = re.findall(r"\]\(([^)]*)\)", shipped)

    assert [link for link in links if not link.startswith(("http://", "https://", "#"))] == []
    assert "Models (`docs/guides/models.md`)" in shipped
    assert "`docs/README.md`" in shipped


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_the_first_documents_stay_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_pages_stay_short() -> None:
    lengths = {name_of(page): len(page.read_text(encoding="utf-8").splitlines()) for page in _pages()}

    assert len(lengths) > 20
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_PAGE} == {}


def test_pages_say_first_whom_they_are_for() -> None:
    begun = {name_of(page): page.read_text(encoding="utf-8").split("\n\n", maxsplit=2)[1] for page in _pages()}

    assert [name for name, sentence in begun.items() if not sentence.startswith("For ")] == []


def test_every_page_is_in_the_list_of_pages_which_the_readme_names() -> None:
    linked = _linked(DOCS / "README.md") | {DOCS / "README.md"}

    assert DOCS / "README.md" in _linked(ROOT / "README.md")
    assert [name_of(page) for page in _pages() if page not in linked] == []


def test_the_page_of_refusals_has_every_known_refusal() -> None:
    page = (DOCS / "operations" / "model-refusals.md").read_text(encoding="utf-8")
    listed = {tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in page.splitlines() if "|" in line}

    missing = [
        known.name
        for known in known_answers().refusals
        if (known.server, known.says, known.cause, known.remedy) not in listed
    ]
    assert missing == []


def test_files_named_in_the_architecture_exist() -> None:
    assert len(FILE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))) > 50

    explained = (ROOT / "ARCHITECTURE.md", *sorted((DOCS / "explanation").glob("*.md")))
    files = {path.name for path in python_files("app")}
    named = {(name_of(page), name) for page in explained for name in FILE.findall(page.read_text(encoding="utf-8"))}

    assert [
        (page, name)
        for page, name in sorted(named)
        if name not in files and not (ROOT / "app" / "throughline" / name).exists() and not (ROOT / name).exists()
    ] == []


def test_no_file_tells_of_the_machine_it_was_written_on() -> None:
    told = [
        f"{name_of(path)}: {found.group()}"
        for path in own_files()
        if path.suffix not in DATA and not path.relative_to(ROOT).match(RECORDED)
        for trace in TRACES
        for found in trace.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert told == []


def _linked(document: Path) -> set[Path]:
    """Return the files that the document links."""
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    return {(document.parent / target.partition("#")[0]).resolve() for target in targets if "://" not in target}


def _documents() -> list[Path]:
    """Return our documents, without those of others that are kept as they were."""
    found = (path for path in own_files() if path.suffix == ".md")
    return [path for path in found if not path.relative_to(ROOT).match(RECORDED)]


def _pages() -> list[Path]:
    """Return the pages in docs/, but for the decisions, which have an index and a form of their own."""
    return [path for path in _documents() if path.is_relative_to(DOCS) and not path.is_relative_to(DOCS / "decisions")]


def _anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_pin_everything_by_hash_and_name_no_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    pins = re.split(r"\n(?=[a-zA-Z0-9])", "\n" + text)[1:]

    assert len(pins) > 50
    assert [pin.splitlines()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []
    assert "://" not in text
    assert "-url" not in text


def test_both_locks_agree_and_hold_every_direct_dependency() -> None:
    run, dev = _pins("requirements.lock"), _pins("requirements-dev.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {re.split(r"[^\w.-]", text)[0].lower() for text in project["dependencies"]}

    assert {name: version for name, version in run.items() if dev.get(name) != version} == {}
    assert direct - run.keys() == set()


def _pins(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^ \\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {package.lower(): version for package, version in found}


def test_tests_named_in_the_makefile_exist() -> None:
    named = re.findall(r"\b[a-z_]+/test_[a-z_]+\.py", (ROOT / "Makefile").read_text(encoding="utf-8"))

    assert len(named) > 20
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_make_help_lists_every_command() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout

    for command in ("setup", "run", "test", "test-slow", "check", "ci", "format", "bench", "migrate", "lock"):
        assert re.search(rf"^  make {command} +\w", listed, re.MULTILINE)


def test_setup_says_which_python_it_needs(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2\nexit 1\n")
    old.chmod(0o755)

    refused = _set_up_copy(tmp_path, str(old))

    assert refused.returncode != 0
    assert "3.11 or newer is needed" in refused.stderr


def test_setup_says_which_system_package_is_missing(tmp_path: Path) -> None:
    without_venv = tmp_path / "python3"
    without_venv.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    without_venv.chmod(0o755)

    refused = _set_up_copy(tmp_path, str(without_venv))

    assert refused.returncode != 0
    assert "-venv" in refused.stderr
    assert not list(tmp_path.glob("project/.venv/.stamp*"))


def _set_up_copy(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up in a copy, where it can do no harm."""
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "requirements.lock", "pyproject.toml"):
        (project / name).write_bytes((ROOT / name).read_bytes())
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python}
    command = ["sh", str(project / "scripts" / "setup"), "run"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


SETTING = re.compile(r"^# ([A-Z_]+)=(.*)$", re.MULTILINE)


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    made = made_files()

    assert {".env.example", "errors.md", "metrics.md", "command-line.md"} <= {path.name for path in made}
    assert [name_of(path) for path, text in made.items() if path.read_text(encoding="utf-8") != text] == []


def test_every_setting_has_a_section_a_page_and_a_meaning() -> None:
    fields = {name: info for section in ALL_SECTIONS.values() for name, info in section.model_fields.items()}

    assert fields.keys() == PROGRAM_SETTINGS.model_fields.keys()
    assert sorted(ALL_SECTIONS) == sorted(subject for subjects in PAGES.values() for subject in subjects)
    assert [name for name, info in fields.items() if not (info.description or "").endswith(".")] == []


def test_the_example_environment_is_read_as_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROGRAM_SETTINGS.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "settings"
    lines = SETTING.findall((ROOT / ".env.example").read_text(encoding="utf-8"))
    file.write_text("\n".join(f"{name}={value}" for name, value in lines))

    shown = PROGRAM_SETTINGS(_env_file=file).model_dump()

    assert len(lines) > len(shown)
    for name, info in PROGRAM_SETTINGS.model_fields.items():
        if info.default is not None:  # unset ones show a sample
            assert shown[name] == info.default, name


def test_the_page_of_the_command_line_has_every_command_of_a_chat() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")

    assert [name for name in COMMANDS if not re.search(rf"`/{name}\b", page)] == []
