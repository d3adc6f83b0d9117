"""The Python processes in which Spark has made data sources and planned reads: of no use while a query runs.

Spark keeps a daemon for each of the two as long as it lives, and a worker for a minute after its last use: 140 MB, then 40. What it needs
again it starts again, in half a second.
"""

import logging
from typing import Any, Final

log = logging.getLogger(__name__)

_ENVIRONMENT: Final = "org.apache.spark.SparkEnv"
_WORKERS: Final = "org.apache.spark.api.python.PythonWorkerFactory"
_PLANNING: Final = "pyspark.sql.worker."
"""The Python modules of their workers begin so, those of tasks do not."""


def end_planning_processes(spark: Any) -> int:
    """End those that do nothing; how many daemons. Not while a query of this Spark begins, or a batch makes reads of its own.

    Another Spark's insides may differ: then they stay.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    ended = 0
    try:
        gateway = spark.sparkContext._gateway
        java = gateway.jvm
        known = _field(java, _ENVIRONMENT, "pythonWorkers", spark.sparkContext._jsc.sc().env()).toSeq()
        for number in range(known.size()):
            module = _field(java, f"{_ENVIRONMENT}$PythonWorkersKey", "workerModule", known.apply(number)._1())
            workers = known.apply(number)._2()
            if module.startswith(_PLANNING) and _field(java, _WORKERS, "daemon", workers) is not None and not _is_used(java, workers):
                stop = java.java.lang.Class.forName(_WORKERS).getDeclaredMethod("stopDaemon", gateway.new_array(java.java.lang.Class, 0))
                stop.setAccessible(True)
                stop.invoke(workers, gateway.new_array(java.java.lang.Object, 0))
                ended += 1
    except (AttributeError, Py4JError, PySparkException, TypeError) as error:
        log.debug("Spark's processes for planning stay: %s", error)
    return ended


def _is_used(java: Any, workers: Any) -> bool:
    """Whether one of the workers is not idle, and has not ended."""
    idle, known = (_field(java, _WORKERS, name, workers).toSeq() for name in ("idleWorkers", "daemonWorkers"))
    each = (known.apply(number) for number in range(known.size()))
    return any(not idle.contains(worker._1()) and worker._2().isAlive() for worker in each)


def _field(java: Any, of: str, name: str, owner: Any) -> Any:
    """Of the class with this name: py4j cannot look at all of Spark's classes, whose own libraries are not all there."""
    field = java.java.lang.Class.forName(of).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
