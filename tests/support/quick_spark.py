"""How each Spark of the tests starts soon: environment variables, and what they name, made once for a virtual environment by `make test`.

As a program, ``python -m support.quick_spark`` in `tests`, it makes what is missing. Without it Spark starts later, and nothing fails.
"""

import os
import subprocess
import sys
from pathlib import Path

from moldau.lake.class_archive import reading
from moldau.lake.java_options import java_options
from moldau.lake.spark_home import CACHE_VARIABLE, PreparedSpark, prepared_spark
from support.java import QUICK
from support.sizes import TORTURE

_CACHE = Path(sys.prefix, "quick-spark")
_INTERPRETED = ("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.codegen.factoryMode=NO_CODEGEN")
"""Spark compiles no code for a query: with the few rows of a test that takes longer than to interpret its expressions."""
_OPTIONS = (*QUICK, "-Dspark.python.authenticate.socketTimeout=180s", *(() if TORTURE else _INTERPRETED))


def spark_variables() -> dict[str, str]:
    """For the environment of tests, and so of all programs that they start.

    A worker's first answer may take longer on a machine that runs tests than Spark would wait.
    """
    return {CACHE_VARIABLE: str(_CACHE), "SPARK_SUBMIT_OPTS": java_options(_OPTIONS), "SPARK_LAUNCHER_OPTS": java_options(QUICK)}


def cluster_variables() -> dict[str, str]:
    """Beside these, for processes of a Spark cluster and what is submitted to it, whose home is the one of their environment."""
    prepared = prepared_spark(_CACHE)
    if not prepared.is_there:
        return {}
    return {"SPARK_HOME": str(prepared.home), "SPARK_SUBMIT_OPTS": java_options((*_OPTIONS, *reading(prepared.archive)))}


def daemon_options() -> str:
    """Options for the Java of a process of a Spark cluster, in one text."""
    return java_options((*QUICK, *reading(prepared_spark(_CACHE).archive)))


def prepared() -> PreparedSpark | None:
    """What the Sparks of tests use, if it was made."""
    found = prepared_spark(_CACHE)
    return found if found.is_there else None


def main() -> None:
    """Make what is missing."""
    environment = {**os.environ, **spark_variables()}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run([sys.executable, "-m", "moldau", "spark", "prepare"], env=environment, check=False)
    if done.returncode != 0:
        print("tests with Spark take longer without the archive", file=sys.stderr)


if __name__ == "__main__":
    main()
