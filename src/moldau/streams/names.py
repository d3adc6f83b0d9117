"""Names of jobs and of their queries."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def parse_job_name(text: str) -> str:
    """A job's name. ValueError."""
    if NAME.fullmatch(text) is None:
        raise ValueError(f"a job's name has up to 100 letters, digits, '.', '_' and '-', the first a letter or digit; not {text!r}")
    return text
