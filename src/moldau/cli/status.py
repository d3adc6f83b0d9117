"""``moldau status``: the metrics of a broker, for a person."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from moldau.cli.listening import METRICS_DEFAULT
from moldau.cli.output import human_bytes, print_json, print_table, say
from moldau.model.host_port import parse_host_port

if TYPE_CHECKING:
    from moldau.cli.metrics_page import Page

_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"


class _Number(NamedTuple):
    name: str
    metric: str
    unit: str = ""


_BROKER = (
    _Number("connections", "kafka_server_socketservermetrics_connection_count"),
    _Number("partitions_led", f"{_REPLICAS}leadercount"),
    _Number("partitions_under_replicated", f"{_REPLICAS}underreplicatedpartitions"),
    _Number("partitions_under_min_isr", f"{_REPLICAS}underminisrpartitioncount"),
    _Number("partitions_offline", f"{_REPLICAS}offlinereplicacount"),
    _Number("log_directories_offline", "moldau_log_directories_offline"),
    _Number("groups", f"{_GROUPS}numgroups"),
    _Number("committed_offsets", f"{_GROUPS}numoffsets"),
    _Number("transactions_open", "moldau_transactions_open"),
    _Number("fetches_waiting", "kafka_server_delayedoperationpurgatory_purgatorysize"),
    _Number("log_bytes", "kafka_log_log_size", "bytes"),
    _Number("memory_bytes", "process_resident_memory_bytes", "bytes"),
    _Number("cpu_seconds", "process_cpu_seconds_total", "seconds"),
)


@click.command("status")
@click.argument("address", metavar="[HOST:PORT]", default=METRICS_DEFAULT)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(address: str, as_json: bool) -> None:
    """Show how a broker stands: requests, topics and what it holds, since its start.

    HOST:PORT is where `moldau serve --metrics` serves them; without it 127.0.0.1:9404. Exit code 1 if there is no answer, or if the
    broker is starting or has stopped.
    """
    from moldau.model.extras import require

    require("metrics", "moldau status")
    from moldau.cli.metrics_page import read_page

    try:
        host, port = parse_host_port(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    page = read_page(host or "127.0.0.1", port)
    document = _document(page)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _document(page: "Page") -> dict[str, Any]:
    return {
        "broker": {each.name: page.total(each.metric) for each in _BROKER},
        "budgets": _budgets(page),
        "requests": _requests(page),
        "topics": _topics(page),
    }


def _budgets(page: "Page") -> list[dict[str, Any]]:
    held, limit = page.by("moldau_budget_held", "setting"), page.by("moldau_budget_limit", "setting")
    refusals = page.by("moldau_budget_refusals_total", "setting")
    return [
        {"setting": setting, "held": value, "limit": limit.get(setting), "refusals": refusals.get(setting, 0)}
        for setting, value in sorted(held.items())
    ]


def _requests(page: "Page") -> list[dict[str, Any]]:
    errors = page.by(f"{_REQUESTS}errors_total", "request")
    quantiles = {share: page.by(f"{_REQUESTS}totaltimems", "request", quantile=share) for share in ("0.5", "0.99")}
    return [
        {
            "request": request,
            "requests": count,
            "errors": errors.get(request, 0),
            "p50_ms": quantiles["0.5"].get(request),
            "p99_ms": quantiles["0.99"].get(request),
        }
        for request, count in sorted(page.by(f"{_REQUESTS}requests_total", "request").items())
    ]


def _topics(page: "Page") -> list[dict[str, Any]]:
    columns = {
        "messages_in": page.by(f"{_TOPICS}messagesin_total", "topic"),
        "bytes_in": page.by(f"{_TOPICS}bytesin_total", "topic"),
        "bytes_out": page.by(f"{_TOPICS}bytesout_total", "topic"),
        "log_bytes": page.by("kafka_log_log_size", "topic"),
    }
    names = sorted(set().union(*columns.values()))
    return [{"topic": name, **{column: values.get(name, 0) for column, values in columns.items()}} for name in names]


def _print(document: Mapping[str, Any]) -> None:
    units = {each.name: each.unit for each in _BROKER}
    rows = [(name.replace("_", " "), _shown(value, units[name])) for name, value in document["broker"].items()]
    print_table(("broker", "value"), rows, numeric=("value",))
    _print_rows("requests", document["requests"], ("request", "requests", "errors", "p50_ms", "p99_ms"))
    _print_rows("topics", document["topics"], ("topic", "messages_in", "bytes_in", "bytes_out", "log_bytes"))
    _print_rows("budgets", document["budgets"], ("setting", "held", "limit", "refusals"))


def _print_rows(what: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    say("")
    if not rows:
        say(f"no {what}")
        return
    headings = [name.replace("_", " ") for name in columns]
    cells: Iterable[Sequence[str]] = [[_cell(row[name], name) for name in columns] for row in rows]
    print_table(headings, cells, numeric=headings[1:])


def _cell(value: Any, column: str) -> str:
    if isinstance(value, str):
        return value
    return _shown(value, "bytes" if column.startswith("bytes") or column.endswith("bytes") else "")


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "bytes":
        return human_bytes(int(value))
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
