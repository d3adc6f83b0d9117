"""The process from which Spark forks its Python workers: it has imported what tasks of ours use, once, before it forks them.

Spark's own daemon imports next to nothing, so that each worker spends a second of processor time on the same imports, and has its own copy
of what they leave in memory. Spark starts this module by ``spark.python.daemon.module``.
"""

import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import Final

MODULE: Final = __name__
SETTING: Final = "spark.python.daemon.module"
USED: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pandas",
    "moldau.lake.reading.source",
    "moldau.lake.reading.tasks",
    "moldau.lake.reading.event_shape",
    "moldau.lake.reading.event_times",
    "moldau.lake.reading.narrowing",
    "moldau.lake.reading.counting",
    "moldau.lake.reading.watermark",
    "moldau.lake.writing.sink",
    "moldau.lake.writing.frames",
    "moldau.lake.writing.task",
    "moldau.streams.table_output",
)


def import_used() -> None:
    """Whatever of it is installed: a worker that lacks something says so itself.

    numpy seeds its generator when it is imported: each worker does so again, or users' functions would draw the same numbers in all.
    """
    for name in USED:
        with suppress(ImportError):
            importlib.import_module(name)
    if "numpy" in sys.modules:
        os.register_at_fork(after_in_child=importlib.import_module("numpy.random").seed)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    import_used()
    manager()
