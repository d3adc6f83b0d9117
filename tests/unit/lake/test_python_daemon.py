"""The process from which Spark forks its Python workers: what each of them does not share with the others."""

import subprocess
import sys

_TWO_WORKERS = """
import os
from moldau.lake.python_daemon import import_used

import_used()
import numpy

for _ in range(2):
    child = os.fork()
    if child == 0:
        print(numpy.random.random(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_workers_have_random_numbers_of_their_own() -> None:
    """Functions of users draw them from the generator that numpy makes when it is imported, which is before the fork."""
    ran = subprocess.run([sys.executable, "-c", _TWO_WORKERS], capture_output=True, text=True, check=True, timeout=120)
    first, second = ran.stdout.split()
    assert first != second
