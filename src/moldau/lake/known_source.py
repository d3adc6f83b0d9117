"""Makes the format ``moldau`` known to a Spark of ours without the processes that Spark starts to find it.

At the first use of a format that is none of its own, Spark starts a Python daemon and a worker, which import all modules named
``pyspark_*`` and hand over what they have: half a second, and 50 MB for as long as Spark lives. Where ours is the only one of these
modules, the answer is known. The functions of the source have the environment of all others then, so that one daemon forks the workers of
both.
"""

import logging
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

log = logging.getLogger(__name__)

_OURS: Final = "pyspark_moldau"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"


def make_known(spark: Any) -> None:
    """Spark finds the format as if it had looked for it. Another Spark's insides may differ: then it looks itself."""
    from py4j.protocol import Py4JError
    from pyspark.sql.udf import _wrap_function

    if not is_only_one():
        return
    source_class = import_module(_OURS).DefaultSource
    try:
        java = spark.sparkContext._jvm
        found = getattr(getattr(java, f"{_SOURCES}.DataSourceManager$"), "MODULE$")
        source = getattr(java, f"{_SOURCES}.v2.python.UserDefinedPythonDataSource")(_wrap_function(spark.sparkContext, source_class))
        known = java.org.apache.spark.api.python.PythonUtils.toScalaMap({source_class.name(): source})
        put = getattr(found, "dataSourceBuilders_$eq")  # what is not there has no error before it is called
        put(java.scala.Option.apply(known))
    except (AttributeError, Py4JError, TypeError) as error:
        log.debug("Spark looks for data sources itself: %s", error)


def is_only_one() -> bool:
    """Whether Spark would find no source but ours."""
    return [each.name for each in iter_modules() if each.name.startswith("pyspark_")] == [_OURS]
