"""Spark sessions: quiet, on this machine and its loopback interface, or tasks on a standalone cluster; started at the first use where a
command may not need one.

py4j and pyspark print a traceback, from whichever thread it happens in, where a connection to Java is cut: after Ctrl-C, with which we end
Java at once, it would stand where a user looks for what the command did. A Java that ends by itself is reported as before.
"""

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from moldau.lake import python_daemon
from moldau.lake.java_options import collector_options, java_options
from moldau.lake.known_source import make_known
from moldau.lake.spark_home import linked_home
from moldau.lake.spark_processes import SparkProcesses
from moldau.model.extras import require
from moldau.model.host_port import Address, parse_host_port


class _CutConnections(logging.Filter):
    """Drops what py4j logs, to the root logger, about a cut connection to processes that are being ended, and about Ctrl-C, which it
    raises.
    """

    def __init__(self, processes: SparkProcesses) -> None:
        super().__init__()
        self._processes = processes

    def filter(self, record: logging.LogRecord) -> bool:
        interrupted = record.exc_info is not None and isinstance(record.exc_info[1], KeyboardInterrupt)
        return record.module != "java_gateway" or not (interrupted or self._processes.ending)


def silence_py4j(processes: SparkProcesses) -> None:
    """py4j logs nothing about these processes from when they are being ended on."""
    logging.getLogger().addFilter(_CutConnections(processes))


def silence_accumulators(server: Any, processes: SparkProcesses) -> None:
    """The server to which tasks of these processes send their accumulators prints no error from when they are being ended on."""
    print_error = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not processes.ending:
            print_error(request, address)

    server.handle_error = handle_error


def silence_query_errors() -> None:
    """pyspark logs nothing about an error in a query that it raises as well: it would be a line of several KB, with Java's stack."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


log = logging.getLogger(__name__)

MEMORY_MIN_MB = 512
"""Spark refuses to start with less than some 450 MiB of heap."""
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark reads the rows of Python tasks within their bounds: Arrow does not have to check them again for each value."""
_STANDALONE = "spark://"
_CONNECT_S = 5.0
_LOOK_S = 0.05
_WAITING_LINE_S = 20.0
_MEMORY = re.compile(r"([1-9][0-9]{0,8})([kmgt])b?", re.IGNORECASE)
_MB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}


class SessionError(RuntimeError):
    """Spark cannot be started; the message names what is missing."""


def check_spark(memory: str) -> None:
    """What can be known before Spark is started: it is installed, there is a Java, and `memory` is some. SessionError."""
    require("lake", "Spark")
    _check_java()
    check_memory(memory)


def check_memory(memory: str) -> None:
    """`memory` is an amount that Spark can start with. SessionError."""
    if memory_mb(memory) < MEMORY_MIN_MB:
        raise SessionError(f"Spark needs at least {MEMORY_MIN_MB}m of memory, not {memory}")


def memory_mb(memory: str) -> float:
    """An amount as Spark's settings have it. SessionError."""
    found = _MEMORY.fullmatch(memory.strip())
    if found is None:
        raise SessionError(f"{memory!r} is no amount of memory for Spark: a whole number with k, m or g, 512m or 2g")
    return int(found[1]) * _MB[found[2].lower()]


def check_master(url: str) -> None:
    """`url` is that of a standalone cluster. SessionError."""
    try:
        parse_master(url)
    except ValueError as error:
        raise SessionError(str(error)) from error


def parse_master(url: str) -> str:
    """``spark://HOST:PORT``, with several masters ``spark://HOST:PORT,HOST:PORT``: the same. ValueError."""
    try:
        if not url.startswith(_STANDALONE):
            raise ValueError("it does not begin with spark://")
        if not all(each.host and each.port for each in _masters(url)):
            raise ValueError("each master has a host and a port above 0")
    except ValueError as error:
        raise ValueError(f"{url!r} is no Spark cluster, spark://HOST:PORT: {error}") from error
    return url


def _masters(url: str) -> list[Address]:
    return [Address(*parse_host_port(each)) for each in url.removeprefix(_STANDALONE).split(",")]


def _check_reachable(url: str) -> None:
    """A master answers: Spark itself would try for a minute. SessionError."""
    problems = []
    for address in _masters(url):
        try:
            socket.create_connection(address, timeout=_CONNECT_S).close()
        except OSError as error:
            problems.append(f"{address}: {(error.strerror or str(error)).lower()}")
        else:
            return
    raise SessionError(f"no master of {url} answers: {'; '.join(problems)}")


def start_spark(
    name: str,
    directory: str,
    *,
    master: str | None = None,
    cores: int = 2,
    memory: str = "1g",
    settings: dict[str, str] | None = None,
    task_tries: int = 1,
    processes: SparkProcesses | None = None,
) -> Any:
    """Start Spark in this process's own Java process; whatever it writes and prints goes below `directory`. SessionError.

    The Python tasks run with this interpreter, so that they find what it finds. A task that fails is run up to `task_tries` times. None of
    its `processes` outlives this one; a caller that passes them ends them; otherwise they end with this process.

    With a `master` the tasks run on the workers of this standalone cluster, on `cores` of all together; each executor has `memory`, as the
    Java process of this host. It returns when the first executor runs: until a worker is free that takes a while, with a line in the log.
    """
    check_spark(memory)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master or f"local[{cores},{task_tries}]").appName(name)
    for key, value in {**_settings(directory, master, cores, memory, task_tries, settings or {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    with _starting(directory, processes) as found:
        spark = builder.getOrCreate()
        _prepare(spark.sparkContext, found)
        make_known(spark)
    if master is not None:
        _wait_for_executor(spark.sparkContext, master, memory)
    return spark


@dataclass(frozen=True, slots=True)
class TaskSession:
    """A Spark that runs Python tasks, and nothing else: what a load needs of a session."""

    sparkContext: Any  # noqa: N815  # as a session has it

    def stop(self) -> None:
        """End Spark."""
        self.sparkContext.stop()


def start_tasks(
    name: str,
    directory: str,
    *,
    master: str | None = None,
    cores: int = 2,
    memory: str = "1g",
    task_tries: int = 1,
    processes: SparkProcesses | None = None,
) -> TaskSession:
    """As `start_spark`, in half the time: without SQL, with only the quick compiler of a Java that has little to do. SessionError."""
    check_spark(memory)
    from pyspark import SparkConf, SparkContext

    settings = {"spark.driver.defaultJavaOptions": QUICK_COMPILER, **_settings(directory, master, cores, memory, task_tries, {})}
    with _starting(directory, processes) as found:
        conf = SparkConf().setMaster(master or f"local[{cores},{task_tries}]").setAppName(name).setAll(list(settings.items()))
        context = SparkContext.getOrCreate(conf)
        _prepare(context, found)
    if master is not None:
        _wait_for_executor(context, master, memory)
    return TaskSession(context)


def _prepare(context: Any, processes: SparkProcesses) -> None:
    """What each Spark of ours needs when it has started."""
    context.setLogLevel("ERROR")
    silence_accumulators(context._accumulatorServer, processes)
    silence_query_errors()


def _wait_for_executor(context: Any, master: str, memory: str) -> None:
    """Until a worker has given one. SessionError if Java ends."""
    from py4j.protocol import Py4JError

    line_at = time.monotonic() + _WAITING_LINE_S
    try:
        tracker = context._jsc.sc().statusTracker()
        while len(tracker.getExecutorInfos()) < 2:  # the driver is one of them
            if time.monotonic() >= line_at:
                line_at += _WAITING_LINE_S
                log.warning("no worker of %s has a free core and %s of memory; waiting for one", master, memory)
            time.sleep(_LOOK_S)
    except Py4JError as error:
        raise SessionError(f"Spark ended while it waited for a worker of {master}: {str(error).splitlines()[0]}") from error


@contextmanager
def _starting(directory: str, given: SparkProcesses | None) -> Iterator[SparkProcesses]:
    """What is started belongs to the processes given; Java's output goes to a file, and why it did not start into a SessionError."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    os.makedirs(os.path.join(directory, "tmp"), exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_COMPILER)  # of a Java that only composes the command of the other one
    processes = given or _until_exit(SparkProcesses(directory))
    silence_py4j(processes)
    spark_log = os.path.join(directory, "spark.log")
    try:
        with _errors_to(spark_log), processes.starting(), linked_home(directory), _modules_found(), _own_interrupt():
            yield processes
    except (PySparkException, Py4JError) as error:
        raise SessionError(f"Spark did not start: {_first_error(spark_log) or error}; more in {spark_log}") from error


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Ctrl-C stays with this program: a Spark that is started on the main thread takes it, and raises KeyboardInterrupt amid a batch."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _modules_found() -> Iterator[None]:
    """The Python processes of a Spark that is started meanwhile find the modules that this one finds, such as those beside its program."""
    before = os.environ.get("PYTHONPATH")
    installed = tuple({os.path.abspath(sysconfig.get_path(each)) for each in ("stdlib", "platstdlib", "purelib", "platlib")})
    own = [os.path.abspath(each) for each in sys.path if not os.path.abspath(each).startswith(installed) and not each.endswith(".zip")]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*own, *(before.split(os.pathsep) if before else ())]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _until_exit(processes: SparkProcesses) -> SparkProcesses:
    """Ended at the end of this process, and not before: an unreferenced object would close its pipe to the watchdog."""
    atexit.register(processes.end)
    return processes


def _check_java() -> None:
    """Java is installed. Without it pyspark prints a page that does not name Java."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise SessionError(f"there is no Java at JAVA_HOME, {home}; Spark needs a Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise SessionError("there is no Java: neither JAVA_HOME is set nor is java in the PATH; Spark needs a Java 17 or newer")


def _first_error(path: str) -> str:
    """The first line that is an error of Java's, which has the reason; those after it report only that it ended. Else the last line."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if line.startswith(("Error", "Exception", "Caused by"))]
    return errors[0] if errors else lines[-1] if lines else ""


def _settings(directory: str, master: str | None, cores: int, memory: str, task_tries: int, given: Mapping[str, str]) -> dict[str, str]:
    """Of our Java process, and of where its tasks run, before those `given`.

    The address at which the workers of a cluster find it is Spark's own choice.
    """
    collector: tuple[str, ...] = ()
    if master is None:
        with suppress(SessionError):  # Spark takes a number of bytes as well
            collector = collector_options(cores, memory_mb(given.get("spark.driver.memory", memory)), given)
        place = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        _check_reachable(master)
        place = {"spark.cores.max": str(cores), "spark.executor.memory": memory, "spark.task.maxFailures": str(task_tries)}
    return {
        **place,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": os.path.join(directory, "tmp"),
        python_daemon.SETTING: python_daemon.MODULE,
        "spark.driver.extraJavaOptions": " ".join(
            (java_options([f"-Djava.io.tmpdir={os.path.join(directory, 'tmp')}", "-XX:-UsePerfData", *collector]), _ARROW)
        ),
        "spark.executor.extraJavaOptions": _ARROW,
        "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
    }


@contextmanager
def _errors_to(path: str) -> Iterator[None]:
    """Standard error of processes started meanwhile goes to a file: Java's warnings, and those of the Python tasks it starts."""
    sys.stderr.flush()
    saved = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(log)


Start = Callable[[SparkProcesses], Any]


class LazySpark:
    """A proxy of what `start` returns; the first use starts it, from any thread. What `start` raises, each use raises.

    `close` ends it and all its processes, and removes its directory if that is a temporary one and Spark did start.
    """

    def __init__(self, start: Start, directory: str | None = None, *, prefix: str = "moldau-spark-") -> None:
        self._start = start
        self._directory = directory
        self._prefix = prefix
        self._lock = threading.Lock()
        self._processes: SparkProcesses | None = None
        self._session: Any = None
        self._failure: Exception | None = None
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._started(), name)

    @property
    def was_needed(self) -> bool:
        """Whether anything has used it."""
        return self._processes is not None

    @property
    def is_starting(self) -> bool:
        """Whether it was needed, and is not there yet."""
        return self._processes is not None and self._session is None and self._failure is None

    @property
    def is_running(self) -> bool:
        """Whether it is there."""
        return self._session is not None

    def _started(self) -> Any:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                self._processes = SparkProcesses(self._directory, prefix=self._prefix)
                if self._ended:
                    self._processes.end_soon()
                try:
                    self._session = self._start(self._processes)
                except Exception as error:
                    self._failure = error
                    raise
            return self._session

    def end_soon(self) -> None:
        """Kill it, also if it is just starting, from a signal handler: other uses of it fail. Does not wait."""
        self._ended = True
        if self._processes is not None:
            self._processes.end_soon()

    def close(self) -> None:
        """Stop it."""
        if self._processes is None:
            return
        if self._session is not None and not self._ended:
            try:
                self._session.stop()
            except Exception as error:  # whatever Java's end makes of it: its processes are ended in any case
                log.info("Spark did not stop cleanly: %s", error)
        if self._failure is not None and not self._ended:
            self._processes.keep_directory()
        self._processes.end()
