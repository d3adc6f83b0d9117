"""Packages from npm, fetched once into the cache of :mod:`support.maven` and used offline afterwards.

Where node or npm is missing the test is skipped, unless the environment has ``CI``: there it must not pass by not running.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.maven import cache_directory


def node_modules(package: str, version: str) -> Path:
    """The folder with a package and all that it needs, for ``NODE_PATH``."""
    folder = cache_directory() / "npm" / f"{package}-{version}"
    if not (folder / "node_modules" / package).exists():
        _fetch(folder, f"{package}@{version}")
    return folder / "node_modules"


def _fetch(folder: Path, wanted: str) -> None:
    if not (shutil.which("npm") and shutil.which("node")):
        message = f"node and npm are needed for {wanted}"
        assert not os.environ.get("CI"), message
        pytest.skip(message)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), wanted], check=True, timeout=300)
