"""Makes the format ``moldau`` known to a Spark of ours without the processes that Spark starts to find it.

At the first use of a format that is none of its own, Spark starts a Python daemon and a worker, which import all modules named
``pyspark_*`` and hand over what they have: half a second, and 50 MB for as long as Spark lives. Where ours is the only one of these
modules, the answer is known. The functions of the source have the environment of all others then, so that one daemon forks the workers of
both.
"""

import logging
import os
import pickle
import shutil
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

log = logging.getLogger(__name__)

_OURS: Final = "pyspark_moldau"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"


def make_known(spark: Any) -> None:
    """Spark finds the format as if it had looked for it. Another Spark's insides may differ: then it looks itself."""
    from py4j.protocol import Py4JError

    try:
        if not is_only_one():
            return
        source_class = import_module(_OURS).DefaultSource
        pickled = bytearray(pickle.dumps(source_class))
        context = spark.sparkContext
        java = context._jvm
        found = getattr(getattr(java, f"{_SOURCES}.DataSourceManager$"), "MODULE$")
        # as what Spark finds it has no accumulator: a session that is started in this Java when this one was stopped has the source too
        code = java.SimplePythonFunction(
            pickled, context.environment, context._python_includes, context.pythonExec, context.pythonVer, [], None
        )
        source = getattr(java, f"{_SOURCES}.v2.python.UserDefinedPythonDataSource")(code)
        known = java.org.apache.spark.api.python.PythonUtils.toScalaMap({source_class.name(): source})
        put = getattr(found, "dataSourceBuilders_$eq")  # what is not there has no error before it is called
        put(java.scala.Option.apply(known))
    except (AttributeError, OSError, Py4JError, TypeError) as error:
        log.debug("Spark looks for data sources itself: %s", error)


def is_only_one() -> bool:
    """Whether Spark would find no source but ours: its Python is this one, and imports from its directory and PYTHONPATH as well."""
    places = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path]
    return _is_this_python() and [each.name for each in iter_modules(places) if each.name.startswith("pyspark_")] == [_OURS]


def _is_this_python() -> bool:
    """Whether the Python of Spark's tasks has what this one has: a link of another environment may be to the same program."""
    theirs = shutil.which(os.environ.get("PYSPARK_PYTHON") or sys.executable) or ""
    return os.path.samefile(os.path.dirname(theirs) or os.sep, os.path.dirname(sys.executable)) and os.path.samefile(theirs, sys.executable)
