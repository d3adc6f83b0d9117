"""Makes a broker of its configuration and its ports, the same way for a process, a test and a simulation."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.broker.broker import Broker
from moldau.log.cache import OPEN_FILES_MAX
from moldau.log.log_set import AllFailedListener
from moldau.model.config.store import BrokerConfig
from moldau.model.value import Value

if TYPE_CHECKING:
    from moldau.ports.background import Background, Workers
    from moldau.ports.clock import Clock
    from moldau.ports.coordination import Coordination
    from moldau.ports.filesystem import FileSystem
    from moldau.ports.transport import Network


class BrokerPorts(Value):
    """What a broker has of the outside, but for its connections, which `Broker.accept` takes one by one."""

    directories: Sequence[str]
    files: "FileSystem"
    clock: "Clock"
    background: "Background"
    """A few threads for calls that wait for the disk."""
    compute: "Background"
    """One thread for work that takes the processor."""
    recompress: "Background"
    """One thread for compressing."""
    coordination: "Coordination"
    network: "Callable[[], Network]"
    """Opens connections to other brokers; called when there is one for the first time."""
    random_bytes: Callable[[int], bytes]
    workers: "Callable[[], Workers]"
    """Processes for work that takes a processor for seconds; called when there is some for the first time."""
    end_earlier_session: Callable[[bool, Callable[[], object]], object] | None = None
    """As of :class:`moldau.assembly.zookeeper_session.EarlierSession`; None where sessions end with their process."""
    on_all_failed: AllFailedListener = lambda _failure: None
    log_files_max: int = OPEN_FILES_MAX


def make_broker(config: BrokerConfig, ports: BrokerPorts) -> Broker:
    """A broker, not started yet."""
    return Broker(
        config,
        directories=ports.directories,
        files=ports.files,
        clock=ports.clock,
        background=ports.background,
        compute=ports.compute,
        recompress=ports.recompress,
        coordination=ports.coordination,
        network=ports.network,
        random_bytes=ports.random_bytes,
        workers=ports.workers,
        end_earlier_session=ports.end_earlier_session,
        on_all_failed=ports.on_all_failed,
        log_files_max=ports.log_files_max,
    )
