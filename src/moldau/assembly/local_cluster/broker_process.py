"""The process of one broker of a cluster on this host: what ``moldau serve`` does with settings alone.

``python -m moldau.assembly.local_cluster.broker_process NAME=VALUE...``. It imports nothing of the command line, which would take 1.7 MB in
every broker.
"""

import gc
import logging
import os
import sys
from collections.abc import Sequence

from moldau.assembly.data_directory import check_given
from moldau.assembly.interpreter import collect_again
from moldau.assembly.process import serve
from moldau.assembly.server_log import set_up_logging
from moldau.assembly.tree_store import STORE
from moldau.model.config.definition import InvalidConfigError
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import MoldauError

_LOG = logging.getLogger(__name__)
_FAILED = 1
_WRONG_SETTING = 2


def main(settings: Sequence[str]) -> int:
    """Serve until SIGTERM; `settings`, as NAME=VALUE, win over those of the environment.

    The exit code, after a line on standard error if it is not 0: 2 for a setting that is not allowed, 1 for a port or a directory that
    cannot be had.
    """
    gc.disable()  # until it listens: what is made while starting stays
    try:
        config = BrokerConfig(read_static(environment=os.environ, settings=settings))
        check_given(config.list("log.dirs"), STORE)
        set_up_logging("info", "text")
        serve(config, on_listening=_announce)
    except InvalidConfigError as error:
        return _failed(error.message, _WRONG_SETTING)
    except MoldauError as error:
        return _failed(str(error), _FAILED)
    except OSError as error:
        where = error.filename or ", ".join(config.list("listeners"))
        return _failed(f"cannot listen on {where}: {(error.strerror or str(error)).lower()}", _FAILED)
    return 0


def _announce(addresses: list[tuple[str, int]]) -> None:
    _LOG.info("broker takes requests: addresses=%s", ",".join(f"{host}:{port}" for host, port in addresses))
    collect_again()


def _failed(message: str, code: int) -> int:
    sys.stderr.write(f"Error: {' '.join(message.splitlines())}\n")  # one line, which `moldau cluster up` repeats
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
