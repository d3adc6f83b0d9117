"""How many open files the process may have (RLIMIT_NOFILE), and which share of them the logs get.

Connections leave a quarter free, or half of a small limit (:mod:`moldau.adapters.asyncio_server`). The logs' cache takes half of that.
The rest is there for what is opened only for a moment: indexes, snapshots, directories that are synced, modules that are imported late.

    256 -> 64    1,024 -> 128    4,096 -> 512    40,000 and more -> 5,000
"""

import logging
import resource

from moldau.adapters.asyncio_server import files_kept

_LOG = logging.getLogger(__name__)

CONNECTIONS_MAX = 50_000
"""Connections by default, however many files may be open: each takes some kilobytes."""
LOG_FILES_MIN = 64
LOG_FILES_MAX = 5_000


def raise_open_files_limit() -> None:
    """Take as many open files as the system allows (RLIMIT_NOFILE, soft to hard)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:  # macOS refuses "infinity"
            _LOG.warning("open files limit not raised: soft=%d hard=%d error=%s", soft, hard, error)


def log_files_max() -> int:
    """Files that the logs may keep open, under the limit that holds now."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return LOG_FILES_MAX if soft == resource.RLIM_INFINITY else max(LOG_FILES_MIN, min(soft // 8, LOG_FILES_MAX))


def connections_max() -> int:
    """Connections that the limit that holds now leaves room for, beside the logs' files and what else is kept free."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(soft - files_kept(soft), CONNECTIONS_MAX))
