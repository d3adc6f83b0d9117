"""The jobs that Python files make, for ``moldau stream``."""

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from moldau.model.errors import MoldauError
from moldau.streams.errors import StreamError
from moldau.streams.job import StreamJob

RUN_NAME = "moldau_stream"
"""`__name__` of the file: it makes its job, and does not run it."""


class JobFileError(StreamError):
    """A file that raises an error; the message has file, line and error."""


def load_job(path: str, name: str | None = None) -> StreamJob:
    """The job that the variables of a file have; with several the one of this name. JobFileError for what the file raises, StreamError.

    The file finds modules beside it, as a program does.
    """
    directory = os.path.dirname(os.path.abspath(path))
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        made = runpy.run_path(path, run_name=RUN_NAME)
    except (MoldauError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        first = next((each for each in str(error).splitlines() if each.strip()), "")  # Spark's errors of syntax begin with an empty line
        raise JobFileError(f"{path}{_line(error, path)}: {type(error).__name__}: {first}") from error
    jobs = list({id(each): each for each in made.values() if isinstance(each, StreamJob)}.values())
    if name is not None:
        return _named(path, name, jobs)
    if not jobs:
        raise StreamError(f"{path}: makes no StreamJob that a variable of the file has")
    if len(jobs) > 1:
        raise StreamError(f"{path}: makes the jobs {', '.join(each.name for each in jobs)}: name one with --job")
    return jobs[0]


def _named(path: str, name: str, jobs: list[StreamJob]) -> StreamJob:
    found = [each for each in jobs if each.name == name]
    if not found:
        others = f"; it makes {', '.join(each.name for each in jobs)}" if jobs else ""
        raise StreamError(f"{path}: makes no StreamJob of the name {name}{others}")
    if len(found) > 1:
        raise StreamError(f"{path}: makes {len(found)} jobs of the name {name}")
    return found[0]


def _line(error: BaseException, path: str) -> str:
    """Where the file has raised it: the last of its lines in the traceback."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
    return f":{frames[-1].lineno}" if frames else ""


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """With these in the environment of this process."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
