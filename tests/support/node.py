"""Packages of Node.js, installed once into a cache by their lock file and used offline afterwards; as `maven.py` does for jars."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.maven import cache_directory


def node_modules(source: Path) -> Path:
    """The `node_modules` of the package in `source`, which has a `package-lock.json`; skips without Node.js, unless there is CI."""
    lock = (source / "package-lock.json").read_bytes()
    directory = cache_directory() / "node" / source.name
    if not directory.exists() or (directory / "package-lock.json").read_bytes() != lock:
        _install(source, directory)
    return directory / "node_modules"


def _install(source: Path, directory: Path) -> None:
    """In a directory beside, then renamed: what was cut off leaves nothing that looks whole."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            message = f"{program} is missing, and with it {source.name}: make setup"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
    partial = directory.with_name(f"{directory.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, partial)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(partial)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
