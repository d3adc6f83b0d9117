"""How each Spark of the tests starts soon: environment variables, and what they name, made once for a virtual environment by `make test`.

As a program, ``python -m support.quick_spark`` in `tests`, it makes what is missing. Without it Spark starts later, and nothing fails.

- Java reads an archive of the classes that most tests with Spark need.
- Spark's Python processes import the pyspark that is installed. They would take it from the zip file of Spark's home, which has no
  compiled modules: each process, a dozen in a test, would compile what it imports. So that home is one of links, where a directory is in
  the zip file's place.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from support.class_archives import QUICK, archive_path, make_archive, reading, writing

_LIMIT_S = 600.0
_DIRECTORY = Path(sys.prefix, "quick-spark")
_HOME = _DIRECTORY / f"home-{version('pyspark')}"
_ZIP = Path("python", "lib", "pyspark.zip")


def spark_variables() -> dict[str, str]:
    """For the environment of tests, and so of all programs that they start.

    A worker's first answer may take longer on a machine that runs tests than Spark would wait.
    """
    found = {"SPARK_SUBMIT_OPTS": _in_one(*_OPTIONS, *reading(_archive())), "SPARK_LAUNCHER_OPTS": _in_one(*QUICK)}
    return found | {"SPARK_HOME": str(_HOME)} if _HOME.exists() else found


def daemon_options() -> str:
    """Options for the Java of a process of a Spark cluster, in one text."""
    return _in_one(*QUICK, *reading(_archive()))


def made_archive() -> Path | None:
    """Where there is all that this module makes: the archive of Java's classes."""
    return _archive() if _HOME.exists() and _archive().exists() else None


_OPTIONS = (*QUICK, "-Dspark.python.authenticate.socketTimeout=180s")


def _archive() -> Path:
    return archive_path(_DIRECTORY, "classes", _HOME / "jars")


def _in_one(*options: str) -> str:
    """As Spark's launcher parses them."""
    return " ".join(f'"{each}"' if " " in each else each for each in options)


def _make_home(installed: Path) -> None:
    """Beside its place, then renamed: what was cut off is not taken for one."""
    partial = _HOME.with_name(f"{_HOME.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / _ZIP).mkdir(parents=True)
    for each in ("bin", "jars", "sbin"):
        (partial / each).symlink_to(installed / each)
    (partial / _ZIP / "pyspark").symlink_to(installed)
    for zipped in (installed / _ZIP).parent.glob("py4j-*.zip"):
        (partial / _ZIP).with_name(zipped.name).symlink_to(zipped)
    partial.rename(_HOME)


def _run(archive: Path) -> None:
    environment = {**os.environ, **spark_variables(), "SPARK_SUBMIT_OPTS": _in_one(*_OPTIONS, *writing(archive))}
    command = [sys.executable, "-m", "support.spark_exercise"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode != 0:
        print(f"no archive of Spark's classes, without which tests with Spark take longer: {done.stderr[-3000:]}", file=sys.stderr)


def main() -> None:
    """Make what is missing."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    if not _HOME.exists():
        _make_home(Path(found.origin).parent)
    make_archive(_archive(), _run)


if __name__ == "__main__":
    main()
