"""``moldau serve``: run a broker. Options become settings, the broker does the rest."""

import gc
import os
from functools import partial
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import INTERRUPTED
from moldau.cli.listening import METRICS_DEFAULT, connectable, host_port, listen_error
from moldau.model.config.definition import InvalidConfigError
from moldau.model.config.listeners import parse_listener
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.host_port import parse_host_port

if TYPE_CHECKING:
    from moldau.assembly.metrics import MetricsEndpoint
    from moldau.cli.audit_beside import AuditorBeside
    from moldau.cli.registry import RegistryBeside


def _auditor_tier(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The rule of `moldau audit`, which a server without an auditor does not load."""
    if value is None:
        return None
    from moldau.cli.audit_comparing import auditor_tier

    return auditor_tier(ctx, parameter, value)


@click.command("serve")
@click.option(
    "-l", "--listen", metavar="HOST:PORT", callback=host_port, help="Where to listen; port 0 picks a free one.  [default: localhost:9092]"
)
@click.option(
    "--advertise", metavar="HOST:PORT", callback=host_port, help="Address that clients connect to, if it differs from the one listened on."
)
@click.option("--data", "directories", metavar="DIR", multiple=True, help="Data directory; may be repeated.  [default: ./moldau-data]")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(),
    help="Settings: TOML with dotted names, or a server.properties of Apache Kafka.",
)
@click.option("-s", "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting, such as num.partitions=3; may be repeated.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,...[/CHROOT]",
    help="Keep the cluster's metadata in ZooKeeper (zookeeper.connect) instead of a file in the first data directory.",
)
@click.option(
    "--metadata",
    metavar="FILE",
    help="Share the cluster's metadata with other brokers of this host in this file (metadata.store.file).",
)
@click.option(
    "--adopt", is_flag=True, help="Take over a data directory that another system, such as Apache Kafka, wrote, or one with other files."
)
@click.option(
    "--registry",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value="127.0.0.1:8081",
    callback=host_port,
    help="Run a schema registry beside the broker; without an address on 127.0.0.1:8081.",
)
@click.option(
    "--audit",
    metavar="TIER",
    callback=_auditor_tier,
    help="Count the cluster as this tier, as moldau audit run does, in this process; at one broker of a cluster.",
)
@click.option(
    "--metrics",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=METRICS_DEFAULT,
    callback=host_port,
    help=f"Serve /metrics for Prometheus, /health and /ready; without an address on {METRICS_DEFAULT}.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def serve(
    listen: str | None,
    advertise: str | None,
    directories: tuple[str, ...],
    file: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    metadata: str | None,
    adopt: bool,
    registry: str | None,
    audit: str | None,
    metrics: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    It prints "listening on HOST:PORT" for each of its listeners when it takes requests, with --registry when the registry does too, and
    then "schema registry listening on URL", with --metrics "metrics at URL"; its log goes to standard error. Settings have Kafka's names.
    They come from --config, then from variables such as MOLDAU_NUM_PARTITIONS=3, then from --set, then from the options here; the later
    wins.

    Exit code 1 for a port or a directory that cannot be had, 2 for a setting that is not allowed.
    """
    try:
        config = _config(listen, advertise, directories, file, settings, zookeeper, metadata)
    except InvalidConfigError as error:
        raise click.UsageError(error.message) from error
    from moldau.assembly.data_directory import check_given
    from moldau.assembly.tree_store import STORE

    check_given(config.list("log.dirs"), STORE, strangers=adopt)
    if registry is not None:
        from moldau.model.extras import require

        require("registry", "a schema registry")
    if audit is not None:
        from moldau.model.extras import require

        require("tracking", "an auditor")
    if metrics is not None:
        from moldau.model.extras import require

        require("metrics", "--metrics")
    gc.disable()  # until it listens: what is made while starting stays
    from moldau.assembly.process import serve as run
    from moldau.assembly.server_log import set_up_logging
    from moldau.cli.output import is_output_error

    set_up_logging(log_level, log_format)
    if registry is not None:
        from moldau.assembly.exposure import warn_if_exposed

        warn_if_exposed("schema registry", [parse_host_port(registry)], "give --registry an address such as 127.0.0.1:8081")
    beside = None if registry is None else _beside(registry, config)
    endpoint = None if metrics is None else _endpoint(metrics)
    auditor = None if audit is None else _auditor(audit, endpoint)

    def bind() -> None:
        if endpoint is not None:
            _bind_metrics(endpoint)
        if beside is not None:
            beside.bind()

    def listening(addresses: list[tuple[str, int]]) -> None:
        url = "" if endpoint is None else f"http://{connectable(*endpoint.address)}/metrics"
        if beside is None:
            _announce(addresses, url)
        else:
            _start_beside(beside, addresses, url)
        if auditor is not None:
            auditor.start(connectable(*addresses[0]))

    def stop_beside() -> None:
        """In the order in which they depend on each other and on the broker."""
        if auditor is not None:
            auditor.stop()
        if beside is not None:
            beside.stop()

    try:
        on_stopping = None if beside is None and auditor is None else stop_beside
        ended = run(config, adopt=adopt, on_bound=bind, on_listening=listening, on_stopping=on_stopping, metrics=endpoint)
        if not ended:  # the broker has; threads of the registry or the auditor may wait for it
            os._exit(INTERRUPTED)
    except OSError as error:
        if is_output_error(error):
            raise
        where = error.filename or ", ".join(config.list("listeners"))
        text = f"cannot listen on {where}: {_reason(error)}"
        raise listen_error(text, error, "--listen (listeners)") from error
    finally:
        if beside is not None:
            beside.release()
        if endpoint is not None:
            endpoint.stop()
    if beside is not None and beside.failure is not None:
        if isinstance(beside.failure, OSError):
            failure = beside.failure
            raise listen_error(failure.strerror or str(failure), failure, "--registry") from failure
        raise beside.failure


def _config(
    listen: str | None,
    advertise: str | None,
    directories: tuple[str, ...],
    file: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    metadata: str | None,
) -> BrokerConfig:
    """All layers of the configuration. InvalidConfigError names the place of a mistake."""
    options = list(settings)
    if listen is not None:
        options.append(f"listeners=PLAINTEXT://{listen}")
    if advertise is not None:
        options.append(f"advertised.listeners=PLAINTEXT://{advertise}")
    if zookeeper is not None:
        options.append(f"zookeeper.connect={zookeeper}")
    if metadata is not None:
        options.append(f"metadata.store.file={metadata}")
    if directories:
        if any("," in directory for directory in directories):
            raise InvalidConfigError("--data: a comma separates directories in log.dirs, so none can have one in its name")
        options.append(f"log.dirs={','.join(directories)}")
    text = None
    if file is not None:
        try:
            with open(file) as opened:
                text = opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfigError(f"--config {file}: {_reason(error) if isinstance(error, OSError) else 'not UTF-8'}") from error
    return BrokerConfig(read_static(file_text=text, file_name=file or "", environment=os.environ, settings=options))


def _beside(listen: str, config: BrokerConfig) -> "RegistryBeside":
    from moldau.cli.registry import RegistryBeside

    addresses = list(config.list("listeners"))
    if config.value("advertised.listeners") is not None:
        addresses += config.list("advertised.listeners")
    return RegistryBeside(
        listen,
        hosts=[*config.list("registry.allowed.hosts"), *(parse_listener(each)[1] for each in addresses)],
        origins=config.list("registry.allowed.origins"),
        connections_max=config.int("registry.max.connections"),
        memory_bytes_max=config.int("registry.memory.max.bytes"),
    )


def _auditor(tier: str, endpoint: "MetricsEndpoint | None") -> "AuditorBeside":
    from moldau.cli.audit_beside import AuditorBeside

    auditor = AuditorBeside(tier)
    if endpoint is not None:
        endpoint.add(auditor.families)
    return auditor


def _start_beside(beside: "RegistryBeside", addresses: list[tuple[str, int]], metrics_url: str) -> None:
    """Start the registry, which needs the broker; both are announced when it listens too.

    A registry that cannot listen, or cannot read its topic, ends the process: no parent process is to take a broker for ready before.
    """
    import logging

    from moldau.assembly.interpreter import collect_again

    collect_again()
    where = ",".join(f"{_shown(host)}:{port}" for host, port in addresses)
    logging.getLogger(__name__).info("broker takes requests, its schema registry is starting: addresses=%s", where)
    beside.start(connectable(*addresses[0]), partial(_print_addresses, addresses, metrics_url))


def _endpoint(listen: str) -> "MetricsEndpoint":
    from moldau.assembly.metrics import MetricsEndpoint

    return MetricsEndpoint(*parse_host_port(listen))


def _bind_metrics(endpoint: "MetricsEndpoint") -> None:
    """Take the port. click.ClickException if it cannot be had."""
    try:
        endpoint.bind()
    except OSError as error:
        raise listen_error(f"cannot serve metrics: {_reason(error)}", error, "--metrics") from error


def _announce(addresses: list[tuple[str, int]], metrics_url: str) -> None:
    """The broker has started."""
    from moldau.assembly.interpreter import collect_again

    _print_addresses(addresses, metrics_url)
    collect_again()


def _print_addresses(addresses: list[tuple[str, int]], metrics_url: str) -> None:
    """Print the lines that a parent process waits for."""
    for host, port in addresses:
        print(f"listening on {_shown(host)}:{port}", flush=True)
    if metrics_url:
        print(f"metrics at {metrics_url}", flush=True)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host or "0.0.0.0"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
