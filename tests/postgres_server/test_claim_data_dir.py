"""The default data folder belongs to one installation; another one gets both paths and the remedy."""

from pathlib import Path

import pytest

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.layout import Layout, make_home
from throughline.postgres_server.server import claim_data_dir, find_installation

FIRST, SECOND = Path("/opt/first/.venv"), Path("/opt/second/.venv")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_home(tmp_path / "data")


def test_an_installation_comes_back_to_the_folder_that_it_owns(layout: Layout) -> None:
    claim_data_dir(layout, FIRST)
    claim_data_dir(layout, FIRST)

    assert layout.owner_record.read_text() == f"{FIRST}\n"


def test_a_second_installation_is_refused_with_both_paths_and_the_remedy(layout: Layout) -> None:
    claim_data_dir(layout, FIRST)

    with pytest.raises(DatabaseUnusable) as refused:
        claim_data_dir(layout, SECOND)

    said = str(refused.value)
    assert f"belongs to the installation in {FIRST}, and this one is in {SECOND}" in said
    assert said.endswith(f"name that folder: DATA_DIR={layout.home.parent}")
    assert layout.owner_record.read_text() == f"{FIRST}\n"


@pytest.mark.parametrize(
    ("package", "installation"),
    [
        ("/opt/first/.venv/lib/python3.12/site-packages/throughline", "/opt/first/.venv"),
        ("/opt/checkout/app/throughline", "/opt/checkout/app"),
    ],
)
def test_an_installation_is_the_environment_or_the_checkout(package: str, installation: str) -> None:
    assert find_installation(Path(package), Path("/opt/first/.venv")) == Path(installation)
