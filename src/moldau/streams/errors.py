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
