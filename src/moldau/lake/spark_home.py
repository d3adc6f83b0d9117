"""A home of Spark from which its Python processes import the pyspark that is installed, with its compiled modules.

Spark has them import pyspark from a zip file of its home, which has none: each process, a dozen in a job, would compile what it imports,
for half a second. The home that is made here has links to all of the other one, and in the place of the zip file a directory.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_VARIABLE: Final = "SPARK_HOME"
_LIBRARIES: Final = Path("python", "lib")


@contextmanager
def linked_home(directory: str) -> Iterator[None]:
    """Spark that is started meanwhile has a home below `directory`, unless the environment names one."""
    found = find_spec("pyspark")
    if os.environ.get(_VARIABLE) or found is None or found.origin is None:
        yield
        return
    os.environ[_VARIABLE] = str(_made(Path(found.origin).parent, Path(directory, "home")))
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def _made(installed: Path, home: Path) -> Path:
    """Made once for a directory."""
    libraries = home / _LIBRARIES
    if libraries.exists():
        return home
    (libraries / "pyspark.zip").mkdir(parents=True)
    for each in installed.iterdir():
        if each.is_dir() and each.name != _LIBRARIES.parts[0]:
            (home / each.name).symlink_to(each)
    (libraries / "pyspark.zip" / "pyspark").symlink_to(installed)
    for each in (installed / _LIBRARIES).glob("py4j-*.zip"):
        (libraries / each.name).symlink_to(each)
    return home
