"""A standalone Spark cluster on this machine: a master and workers, each a process of the installed pyspark."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from moldau.lake import python_daemon
from moldau.lake.spark_processes import processes_with
from support.local_cluster import wait_for
from support.ports import free_ports
from support.quick_spark import cluster_variables, daemon_options

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
_PAGE_S = 10.0
_HOST = "127.0.0.1"
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OWNER = "MOLDAU_TEST_SPARK_DAEMON"
"""In the environment of a worker, and so of its executors and their Python processes: a host that fails takes all of them."""


class SparkCluster:
    """Master and workers of one core each, an executor a worker; use as a context manager. Output of all goes to files of `directory`.

    Executors find Moldau as it would be installed on the hosts of a cluster: by the workers' environment, not the driver's.
    """

    def __init__(self, directory: Path, *, workers: int = 2, memory: str = "600m") -> None:
        self._directory, self._memory = directory, memory
        self._count = workers
        port, self._page = free_ports(2)
        self.url = f"spark://{_HOST}:{port}"
        self._port = port
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start("master", "master.Master", ["--port", str(self._port), "--webui-port", str(self._page)])
            wait_for(lambda: self._state() is not None)
            for number in range(self._count):
                self.start_worker(number)
            wait_for(lambda: self.alive == self._count)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def start_worker(self, number: int) -> None:
        """Does not wait until the master has it."""
        words = ["--cores", "1", "--memory", self._memory, "--webui-port", "0", "--work-dir", str(self._directory / f"worker-{number}")]
        self._start(f"worker-{number}", "worker.Worker", [*words, self.url])

    def kill_worker(self, number: int) -> None:
        """SIGKILL to the worker, its executors and their Python processes, as when its host fails."""
        name = f"worker-{number}"
        while found := processes_with(self._token(name)):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._daemons[name].wait()

    def has_executor(self, number: int) -> bool:
        """Whether a worker has a Python process that runs tasks, or ran some."""
        commands = [_command(pid) for pid in processes_with(self._token(f"worker-{number}"))]
        return any(daemon.encode() in command for command in commands for daemon in (python_daemon.MODULE, "pyspark.daemon"))

    @property
    def alive(self) -> int:
        """How many workers the master has."""
        return sum(each["state"] == "ALIVE" for each in (self._state() or {"workers": []})["workers"])

    def submit(self, *words: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """``spark-submit`` to this cluster: its driver is on this host, as one that is given no deploy mode."""
        settings = {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",  # its output is read at the end: more would fill the pipe, and then the driver waits
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(_SUBMIT), "--master", self.url, *options, *words]
        return subprocess.Popen(
            command, env={**self.environment, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of daemons and drivers."""
        return {
            **os.environ,
            **cluster_variables(),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA_OPTIONS} -Dspark.worker.timeout=10",
        }

    def _start(self, name: str, kind: str, words: Sequence[str]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        token, _, value = self._token(name).partition("=")
        with (self._directory / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [str(_CLASS), f"org.apache.spark.deploy.{kind}", "--host", _HOST, *words],
                env={**self.environment, "JDK_JAVA_OPTIONS": daemon_options(), token: value},
                stdout=log,
                stderr=log,
            )

    def _token(self, name: str) -> str:
        return f"{_OWNER}={os.getpid()}-{self._port}-{name}"

    def _state(self) -> Any:
        """What the master's page has, or None while it does not answer."""
        with suppress(OSError, ValueError), urllib.request.urlopen(f"http://{_HOST}:{self._page}/json/", timeout=_PAGE_S) as answer:
            return json.load(answer)
        return None

    def _end(self) -> None:
        for name, daemon in self._daemons.items():
            while found := processes_with(self._token(name)):
                for pid in found:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                daemon.wait()


def _command(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
