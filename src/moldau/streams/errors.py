"""What is wrong with a job: each a line that names the job, and what to do."""

from moldau.model.errors import MoldauError


class StreamError(MoldauError):
    """A job that cannot be run as it is; the message names it."""


class JobTakenError(StreamError):
    """Another process runs the job; the message has host, process and time."""


class JobFencedError(StreamError):
    """Another process has taken the job over; this one has stopped."""


class CheckpointError(StreamError):
    """The job does not fit its checkpoint; the message has each difference on a line."""


class BatchError(StreamError):
    """A batch that could not be computed or written; the message names query and number."""


def cause_of(error: BaseException) -> str:
    """The innermost reason in what Spark has made of an error: the last line of Python's traceback that is one."""
    text = str(error)
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "File ", "Caused by", "..."))
    ]
    for line in reversed(lines[-200:]):
        name, _, message = line.partition(": ")
        if message and name.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in name:
            return f"{name.rpartition('.')[2]}: {message}"
    return lines[0] if lines else repr(error)
