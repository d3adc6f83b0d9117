"""The job that a Python file makes, for ``moldau stream run``."""

import runpy

from moldau.streams.errors import StreamError
from moldau.streams.job import StreamJob

RUN_NAME = "moldau_stream"
"""`__name__` of the file: it makes its job, and does not run it."""


def load_job(path: str, name: str | None = None) -> StreamJob:
    """The job that the variables of a file have; with several the one of this name. StreamError, and whatever the file raises."""
    made = runpy.run_path(path, run_name=RUN_NAME)
    jobs = list({id(each): each for each in made.values() if isinstance(each, StreamJob)}.values())
    if name is not None:
        jobs = [each for each in jobs if each.name == name]
    if not jobs:
        raise StreamError(f"{path}: makes no StreamJob" + (f" of the name {name}" if name else " that a variable of the file has"))
    if len(jobs) > 1:
        raise StreamError(f"{path}: makes the jobs {', '.join(each.name for each in jobs)}: name one with --job")
    return jobs[0]
