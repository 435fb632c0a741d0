"""Tests of the names that `import throughline` offers."""

import subprocess
import sys

import pytest

import throughline
import throughline.client
import throughline.tools

LOADED = "import sys, throughline; print(*sorted(name for name in sys.modules if name.startswith('throughline.')))"


def test_each_public_name_is_the_one_of_its_module() -> None:
    assert throughline.connect is throughline.client.connect
    assert throughline.ToolFailed is throughline.tools.ToolFailed
    assert throughline.count_tokens("") == 0
    assert {name: getattr(throughline, name).__module__.split(".")[0] for name in throughline.__all__} == dict.fromkeys(
        throughline.__all__, "throughline"
    )


def test_the_import_alone_loads_no_module() -> None:
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_a_name_that_is_not_public_is_refused_with_those_that_are() -> None:
    unknown = "connecting"
    with pytest.raises(AttributeError, match=r"no attribute 'connecting'; it has Client, .*connect"):
        getattr(throughline, unknown)
    assert set(throughline.__all__) <= set(dir(throughline))
