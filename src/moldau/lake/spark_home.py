"""A home of Spark from which its Python processes import the pyspark that is installed, with its compiled modules.

Spark has them import pyspark from a zip file of its home, which has none: each process, a dozen in a job, would compile what it imports,
for half a second. The home that is made here has links to all of the other one, and in the place of the zip file a directory.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
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
    os.environ[_VARIABLE] = str(_made(Path(found.origin).parent, Path(directory).absolute()))
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)


def _made(installed: Path, directory: Path) -> Path:
    """It has a name by its links: a directory may be used again when another pyspark is installed, and by two processes at a time."""
    links = {Path(each.name): each for each in installed.iterdir() if each.is_dir() and each.name != _LIBRARIES.parts[0]}
    links[_LIBRARIES / "pyspark.zip" / "pyspark"] = installed
    links |= {_LIBRARIES / each.name: each for each in (installed / _LIBRARIES).glob("py4j-*.zip")}
    name = blake2b("\n".join(sorted(f"{place} {target}" for place, target in links.items())).encode(), digest_size=6).hexdigest()
    home = directory / f"home-{name}"
    if home.exists():
        return home
    partial = Path(tempfile.mkdtemp(dir=directory, prefix=".home-"))
    for place, target in links.items():
        (partial / place).parent.mkdir(parents=True, exist_ok=True)
        (partial / place).symlink_to(target)
    try:
        partial.rename(home)
    except OSError:  # another process has made it meanwhile
        shutil.rmtree(partial)
        if not home.exists():
            raise
    return home
