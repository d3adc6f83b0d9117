"""Spark in tests starts as it should: Java with the archive of its classes, and Python with the modules that are compiled."""

from pathlib import Path
from typing import Any

import pyspark
import pytest

from support.quick_spark import prepared
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]


def imported_from(_number: int) -> str:
    """Of pyspark, in a task."""
    from pyspark import worker

    return str(worker.__file__)


def test_spark_uses_what_was_made_for_it() -> None:
    """Where something does not fit, Java and Python start without it, in silence."""
    made = prepared()
    if made is None:
        pytest.skip("nothing was made: make quick-java")
    context: Any = spark_session().sparkContext
    java = context._gateway.jvm.java.lang.ProcessHandle.current().pid()
    assert str(made.archive) in Path("/proc", str(java), "maps").read_text()
    (path,) = context.parallelize([0], 1).map(imported_from).collect()
    assert Path(path).resolve().parent == Path(pyspark.__file__).resolve().parent
