"""A real S3 server for tests: versitygw over a directory, whose conditional puts are atomic (`link`)."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from support.ports import free_ports

HOST: Final = "127.0.0.1"
_KEY, _SECRET = "tests", "secret-of-tests"
_START_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.02
_NO_GO: Final = 3
_ROOT = Path(__file__).resolve().parents[2]


def program() -> str:
    """Built at the first use. Without Go the test is skipped, unless the environment has ``CI``."""
    done = subprocess.run(["sh", str(_ROOT / "tools" / "s3-server")], capture_output=True, text=True, check=False)
    if done.returncode == _NO_GO and not os.environ.get("CI"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class S3Server:
    """One server with its objects; may be stopped and started again."""

    def __init__(self) -> None:
        self._program = program()
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-s3-"))
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._buckets = 0

    @property
    def variables(self) -> dict[str, str]:
        """The environment by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
        }

    def bucket(self) -> str:
        """The address of a new bucket."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        (self._directory / "objects" / name).mkdir(parents=True)
        return f"s3://{name}"

    def start(self) -> None:
        (self._directory / "objects").mkdir(exist_ok=True)
        command = [self._program, "--quiet", "--port", f"{HOST}:{self._port}", "posix", str(self._directory / "objects")]
        environment = {**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory, env=environment)
        end = time.monotonic() + _START_LIMIT_S
        while not self._serves():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < end, "versitygw does not serve"
            time.sleep(_POLL_S)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(_START_LIMIT_S)

    def _serves(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), 1.0).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def objects(address: str) -> set[str]:
    """The names of all objects below an address."""
    from moldau.lake.tables.places.addresses import place_of

    return {each.name for each in place_of(address).walk()}
