"""The Python processes in which Spark has made data sources and planned reads: of no use while a query runs.

Spark keeps a daemon and a worker for each of the two as long as it lives, 140 MB. What it needs again it starts again, in half a second.
"""

import logging
from typing import Any, Final

log = logging.getLogger(__name__)

_ENVIRONMENT: Final = "org.apache.spark.SparkEnv"
_WORKERS: Final = "org.apache.spark.api.python.PythonWorkerFactory"
_PLANNING: Final = "pyspark.sql.worker."
"""The Python modules of their workers begin so, those of tasks do not."""


def end_planning_processes(spark: Any) -> int:
    """End Spark's daemons of those that are idle; how many. Not while a query of this Spark begins, or a batch makes reads of its own.

    Another Spark's insides may differ: then they stay.
    """
    from py4j.protocol import Py4JError

    ended = 0
    try:
        gateway = spark.sparkContext._gateway
        java = gateway.jvm
        known = _field(java, _ENVIRONMENT, "pythonWorkers", spark.sparkContext._jsc.sc().env()).toSeq()
        for number in range(known.size()):
            module = _field(java, f"{_ENVIRONMENT}$PythonWorkersKey", "workerModule", known.apply(number)._1())
            workers = known.apply(number)._2()
            idle, all_ = (_field(java, _WORKERS, name, workers).size() for name in ("idleWorkers", "daemonWorkers"))
            if module.startswith(_PLANNING) and 0 < idle == all_:
                stop = java.java.lang.Class.forName(_WORKERS).getDeclaredMethod("stopDaemon", gateway.new_array(java.java.lang.Class, 0))
                stop.setAccessible(True)
                stop.invoke(workers, gateway.new_array(java.java.lang.Object, 0))
                ended += 1
    except (AttributeError, Py4JError, TypeError) as error:
        log.debug("Spark's processes for planning stay: %s", error)
    return ended


def _field(java: Any, of: str, name: str, owner: Any) -> Any:
    """Of the class with this name: py4j cannot look at all of Spark's classes, whose own libraries are not all there."""
    field = java.java.lang.Class.forName(of).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
