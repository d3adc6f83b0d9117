"""The systems under test: Moldau from this checkout, Apache Kafka from Maven Central with the settings of its own server.properties."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.maven import kafka_libraries  # noqa: E402
from support.server import ServerProcess  # noqa: E402

KAFKA_VERSION = "4.3.0"
BEFORE = "moldau before"
KAFKA_JAVA = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
KAFKA_CLUSTER = "bW9sZGF1LWJlbmNobWFyaw"
KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}/logs
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
LOGGING = "Configuration: {Appenders: {Console: {name: out}}, Loggers: {Root: {level: INFO, AppenderRef: {ref: out}}}}\n"


@dataclass(frozen=True, slots=True)
class System:
    """A running broker: its name, where it listens, its process, the folder of its logs."""

    name: str
    bootstrap: str
    pid: int
    data: Path


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def moldau(
    data: Path, *arguments: str, checkout: Path | None = None, host: str = "127.0.0.1", within: Sequence[str] = ()
) -> Iterator[System]:
    """Moldau with its defaults, or other `arguments`; of another `checkout`, it is called `BEFORE`. `within`: a command that runs it."""
    environment = {} if checkout is None else {"PYTHONPATH": str(checkout.resolve() / "src")}
    with ServerProcess(data, arguments=arguments, environment=environment, host=host, within=within) as server:
        yield System("moldau" if checkout is None else BEFORE, server.bootstrap, server.pid, data)


def kafka_command(data: Path, port: int, settings: Mapping[str, str] | None = None, *, heap: str = "1G") -> list[str]:
    """Write Kafka's configuration, `settings` beside the shipped ones or in their place, and format its folder: the command to start it."""
    data.mkdir(parents=True, exist_ok=True)
    properties, logging = data / "server.properties", data / "log4j2.yaml"
    more = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
    properties.write_text(KAFKA_PROPERTIES.format(port=port, controller=free_port(), data=data) + more)
    logging.write_text(LOGGING)
    java = ["java", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{kafka_libraries(KAFKA_VERSION)}/*"]
    form = [*java, "kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", str(properties)]
    subprocess.run(form, check=True, capture_output=True)
    return [java[0], f"-Xmx{heap}", f"-Xms{heap}", *KAFKA_JAVA, *java[1:], "kafka.Kafka", str(properties)]


@contextlib.contextmanager
def kafka(data: Path, settings: Mapping[str, str] | None = None) -> Iterator[System]:
    """Apache Kafka in one process, broker and controller."""
    port = free_port()
    command = kafka_command(data, port, settings)
    log = data / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        limit = time.monotonic() + 60
        while "Kafka Server started" not in log.read_text():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"Kafka did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield System(f"kafka {KAFKA_VERSION}", f"127.0.0.1:{port}", process.pid, data / "logs")
    finally:
        process.terminate()
        process.wait(60)
