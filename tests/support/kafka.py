"""A real Apache Kafka of any version in a process of its own: one node, KRaft mode, on a free port of 127.0.0.1."""

import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.java import java_command
from support.maven import kafka_libraries
from support.ports import free_ports

START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAA"
NODE_ID = 1
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_LOG4J2 = """Configuration:
  Appenders: {Console: {name: out, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}}
  Loggers: {Root: {level: INFO, AppenderRef: {ref: out}}}
"""
_LOG4J1 = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaProcess:
    """Use as a context manager; `logs` is its log directory."""

    def __init__(self, version: str, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.logs = directory / "logs"
        self.bootstrap = ""
        """Chosen at the first start, the same at the next ones."""
        self._controller = ""
        self._directory = directory
        self._settings = settings or {}
        self._libraries = kafka_libraries(version)
        self._output = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text()

    def format(self) -> Path:
        """Write the settings to a file, which is returned, and format the log directory if it is new."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.bootstrap:
            self.bootstrap, self._controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        settings = {
            **_SETTINGS,
            "controller.quorum.voters": f"{NODE_ID}@{self._controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.logs),
            **self._settings,
        }
        config = self._directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self._directory / "log4j2.yaml").write_text(_LOG4J2)
        (self._directory / "log4j1.properties").write_text(_LOG4J1)
        if not (self.logs / "meta.properties").exists():
            self.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)).wait()
        return config

    def start(self) -> None:
        """Format the log directory if it is new, start, and wait until it serves."""
        self._process = self.java("kafka.Kafka", str(self.format()))
        deadline = time.monotonic() + START_LIMIT_S
        self._starts += 1
        while self.output.count("Kafka Server started") < self._starts:
            assert self._process.poll() is None, self.output[-4000:]
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.05)

    def java(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a program over its libraries, which prints to where the server does."""
        logging = [
            f"-Dlog4j2.configurationFile={self._directory / 'log4j2.yaml'}",
            f"-Dlog4j.configuration=file:{self._directory / 'log4j1.properties'}",
        ]
        command = java_command(self._libraries, *logging, *words, memory="512m")
        with self._output.open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Stop it cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop it as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(STOP_LIMIT_S)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def java(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's jars; what it printed, errors too."""
    command = java_command(kafka_libraries(version), *arguments)
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=STOP_LIMIT_S)
