"""`import moldau.tracking` is light: every name is there, and what it needs is imported when it is asked for."""

import subprocess
import sys

import moldau.tracking

HEAVY = {"confluent_kafka", "fastavro", "pyarrow", "pyspark", "pydantic", "xxhash", "starlette", "grpc_tools"}


def test_every_name_is_there() -> None:
    for name in moldau.tracking.__all__:
        assert getattr(moldau.tracking, name).__name__ == name
    assert not hasattr(moldau.tracking, "anything")


def test_nothing_heavy_is_imported_before_it_is_asked_for() -> None:
    """The package itself imports nothing; a producer needs neither arrow nor Spark nor a server."""
    script = "import sys, moldau.tracking; a = set(sys.modules); import moldau.tracking.producer; print(*a); print(*sys.modules)"
    first, second = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert not HEAVY & set(first.split())
    assert HEAVY & set(second.split()) <= {"confluent_kafka", "fastavro", "xxhash"}
