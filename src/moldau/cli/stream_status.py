"""``moldau stream status``: how the jobs of a cluster stand."""

from datetime import UTC, datetime
from typing import Any

import click

from moldau.cli.exit_codes import FAILED, NO_PROCESS
from moldau.cli.options import TEXT, bootstrap_option, timeout_option
from moldau.cli.output import counted, human_bytes, print_json, print_table, say
from moldau.cli.stream_topology import is_topology, opened

_COLUMNS = ("job", "state", "query", "batch", "took", "lag", "time", "watermark", "state rows", "state size", "late", "process")
_NUMERIC = ("batch", "took", "lag", "time", "state rows", "state size", "late")
_DROP = ("process", "state size", "took", "batch", "watermark")


@click.command("status")
@click.argument("job", metavar="[JOB|TOPOLOGY]", required=False, type=TEXT)
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@timeout_option(10.0)
def status(job: str | None, bootstrap: str, as_json: bool, timeout: float) -> None:
    """Show JOB, the jobs of a TOPOLOGY (TOML) at its brokers, or all jobs that have run at this cluster.

    Lag is of now: records of the topics after what is written, and in time the age of the newest record that was read. The watermark is of
    the last batch. Late rows came after it and were dropped, as Spark counts them: rows that a task has aggregated before are one. Below
    the table are the records of each topic that were late, those whose time was replaced, and those that cannot be decoded. All counts
    are since the job's first start.

    Exit codes: 0 all run, or were stopped; 1 a job has failed; 7 a process that was running reports nothing.
    """
    from moldau.model.extras import require

    require("lake", "the status of stream jobs")
    from moldau.streams.operator import SILENT, StreamOperator

    topology = opened(job) if job is not None and is_topology(job) else None
    operator = StreamOperator(bootstrap if topology is None else topology.bootstrap, timeout_s=timeout)
    try:
        known = [job] if job is not None and topology is None else operator.jobs()
        names = known if topology is None else [each.name for each in topology.jobs]
        documents = [operator.status(name) for name in names if name in known]
    finally:
        operator.close()
    if as_json:
        print_json(documents if job is None or topology is not None else documents[0])
    else:
        _print(documents, bootstrap)
        for name in names:
            if name not in known:
                say(f"job {name}: has never run")
    states = {each["state"] for each in documents}
    if "failed" in states:
        click.get_current_context().exit(FAILED)
    if SILENT in states:
        click.get_current_context().exit(NO_PROCESS)


def _print(documents: list[dict[str, Any]], bootstrap: str) -> None:
    from moldau.streams.progress import lateness

    if not documents:
        say(f"no job has run at {bootstrap}")
        return
    rows = [_cells(each, query) for each in documents for query in each["queries"] or [None]]
    print_table(_COLUMNS, rows, numeric=_NUMERIC, drop=_DROP)
    for each in documents:
        if each["generation"] > 1 and "@" not in each["job"]:
            say(f"job {each['job']}: generation {each['generation']}")
        if each["error"]:
            say(f"job {each['job']} failed {each['reported_s_ago']:.0f} s ago: {each['error']}")
        elif each["state"] == "silent":
            say(f"job {each['job']}: process {each['pid']} on {each['host']} has reported nothing for {each['reported_s_ago']:.0f} s")
        for query in each["queries"]:
            for topic, counts in query["inputs"].items():
                for name, what in (
                    ("ahead", "too far ahead, and have the time of the log"),
                    ("without_time", "without a time, and have the time of the log"),
                    ("undecodable", "that cannot be decoded, and were left out or put aside"),
                ):
                    if counts[name]:
                        say(f"job {each['job']}, topic {topic}: {counted(counts[name], 'record')} {what}")
                if counts["late"]:
                    by = lateness(counts["latest_ms"])
                    say(f"job {each['job']}, topic {topic}: {counted(counts['late'], 'record')} that came late, the latest by {by}")


def _cells(document: dict[str, Any], query: dict[str, Any] | None) -> list[object]:
    process = f"{document['host']}:{document['pid']}"
    if query is None or query["batch"] is None:
        return [document["job"], document["state"], "" if query is None else query["query"], *["-"] * 8, process]
    return [
        document["job"],
        document["state"],
        query["query"],
        query["batch"],
        f"{query['batch_ms'] / 1000:.1f} s",
        f"{query['lag_records']:,}",
        "-" if query["lag_s"] is None else f"{query['lag_s']:.0f} s",
        "-" if query["watermark_ms"] is None else datetime.fromtimestamp(query["watermark_ms"] / 1000, UTC).strftime("%F %T"),
        f"{query['state_rows']:,}",
        human_bytes(query["state_bytes"]),
        f"{query['late_rows']:,}",
        process,
    ]
