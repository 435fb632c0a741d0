"""The reference pages and `.env.example` are made from the code: `make reference` brings them up to date."""

import re
from pathlib import Path

import pytest

from house.tree import ROOT, name_of
from scripts.reference.made_files import made_files
from scripts.reference.settings import ALL_SECTIONS, PAGES
from throughline.assembly.env_file import PROGRAM_SETTINGS
from throughline.cli.chat_commands import COMMANDS

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
