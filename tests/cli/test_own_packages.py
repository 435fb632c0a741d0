"""A user's own packages beside the command line: none of their names may be one of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.programs import environment_for_programs


@pytest.mark.process
@pytest.mark.parametrize("name", ["app", "db", "tools", "settings"])
def test_a_package_of_the_users_breaks_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    environment = environment_for_programs()
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))

    command = [sys.executable, "-c", "from throughline.main import main; main()", "--help"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert told.returncode == 0, told.stderr
    assert "serve" in told.stdout
