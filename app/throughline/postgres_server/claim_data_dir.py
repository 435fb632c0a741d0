"""Owner of the default data folder: the installation that used it first, recorded in a file of the folder.

Without it, two checkouts or environments of one user would share sessions, keys and a schema by accident. A folder that
is named with `--data-dir` or DATA_DIR has no owner, because who names it wants to share it.
"""

import sys
from pathlib import Path

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.layout import Layout, write_privately


def find_installation(package: Path, prefix: Path) -> Path:
    """Return the environment `prefix` if `package` is installed in it, otherwise the folder that has the package.

    The environment stays the same if Python or the package is upgraded; a checkout if its environment is created again.
    """
    return prefix if package.is_relative_to(prefix) else package.parent


def running_installation() -> Path:
    """Return the installation that this process runs from."""
    return find_installation(Path(__file__).resolve().parents[1], Path(sys.prefix).resolve())


def claim_data_dir(layout: Layout, installation: Path) -> None:
    """Record `installation` as the owner of the default data folder if it has none. The caller holds the start lock.

    Raises:
        DatabaseUnusable: another installation owns the folder.
    """
    if not layout.owner_record.exists():
        write_privately(layout.owner_record, f"{installation}\n", model=layout.home)
        return
    owner = layout.owner_record.read_text(encoding="utf-8").strip()
    if owner == str(installation):
        return
    folder = layout.home.parent
    raise DatabaseUnusable(
        f"The default data folder {folder} belongs to the installation in {owner}, and this one is in {installation}. "
        f"Give this one a folder of its own with --data-dir or DATA_DIR. To use the same data on purpose, or after the "
        f"installation was moved, name that folder: DATA_DIR={folder}"
    )
