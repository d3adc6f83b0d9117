"""A real PostgreSQL server for tests: from Debian's package, on loopback, with data of its own."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from support.ports import free_ports

HOST: Final = "127.0.0.1"
START_LIMIT_S: Final = 60.0
DROP_FREE_SLOTS: Final = (
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active AND database = current_database()"
)
"""The server may not have noticed yet that a publisher has ended; what is left goes with the server."""
POLL_S: Final = 0.02
SETTINGS: Final[Mapping[str, str]] = {
    "wal_level": "logical",
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "max_wal_senders": "20",
    "max_replication_slots": "40",
    "autovacuum": "off",
    "listen_addresses": HOST,
    "log_min_messages": "warning",
}
"""No fsync: tests kill processes, and no machine loses its power."""


def program(name: str) -> str:
    """Of the newest version that is installed."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    path = found[-1] if found else shutil.which(name)
    assert path, f"no {name}: install Debian's package postgresql"
    return path


class PostgresServer:
    """One server; may be stopped, killed and started again. It does not run as root, which PostgreSQL refuses."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="moldau-postgres-"))
        self.port = free_ports(1)[0]
        self.settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._as_other: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as_other = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=QUIT"]
        words = ("-U", "moldau", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self._run("initdb", "-D", str(self.data), *words)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def conninfo(self, database: str = "postgres") -> str:
        return f"host={HOST} port={self.port} user=moldau dbname={database}"

    def start(self) -> None:
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = [*self._as_other, program("postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.directory), *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        end = time.monotonic() + START_LIMIT_S
        while not self._serves():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL does not serve"
            time.sleep(POLL_S)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends connections and writes a checkpoint; SIGQUIT ends all processes at once, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_LIMIT_S)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def connect(self, database: str = "postgres") -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.conninfo(database), autocommit=True)

    def create(self, database: str) -> str:
        """A new database; its connection string."""
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{database}"'.encode())
        return self.conninfo(database)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _serves(self) -> bool:
        try:
            with self.connect():
                return True
        except psycopg.OperationalError:
            return False

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run([*self._as_other, program(name), *arguments], capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
