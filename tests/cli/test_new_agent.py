"""`throughline agents new NAME`: an agent file and a tool that the service takes as they are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from throughline.agents.registry import AgentDefaults, load_agents
from throughline.execution.call_plugin import add_plugin_folder
from throughline.tools.tool import CallLimits
from throughline.tools.toolbox import ToolBox

Throughline = Callable[..., Result]


def test_what_is_written_is_taken_as_it_is(
    throughline: Throughline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "none"))  # the path of modules is as before afterwards
    result = throughline("agents", "new", "my-writer", "--dir", str(tmp_path / "mine"))
    agent = load_agents([tmp_path / "mine"], AgentDefaults(usage_threshold=0.8, summary_model="")).get("my-writer")
    add_plugin_folder(tmp_path / "mine")

    specs = ToolBox((), CallLimits(5, 1000)).specs(agent.tools[1:])

    assert result.exit_code == 0, result.output
    assert [spec.name for spec in specs] == ["my_writer_word_count"]
    assert f"AGENTS_DIR={tmp_path / 'mine'} throughline chat my-writer" in result.stderr


def test_no_file_is_overwritten(throughline: Throughline, tmp_path: Path) -> None:
    (tmp_path / "writer_tools.py").write_text("mine")

    result = throughline("agents", "new", "writer", "--dir", str(tmp_path))

    assert result.exit_code == 1
    assert "writer_tools.py: exists already" in result.stderr
    assert (tmp_path / "writer_tools.py").read_text() == "mine"
    assert not (tmp_path / "writer.yaml").exists()


@pytest.mark.parametrize("name", ["Writer", "1st", "../x", "a b", ""])
def test_a_name_that_no_agent_may_have_is_refused(throughline: Throughline, tmp_path: Path, name: str) -> None:
    result = throughline("agents", "new", name, "--dir", str(tmp_path))

    assert result.exit_code == 1
    assert "cannot be an agent's name" in result.stderr
    assert list(tmp_path.iterdir()) == []
