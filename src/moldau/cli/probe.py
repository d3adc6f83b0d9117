"""``moldau probe``: availability and latency of brokers and mirrors, measured by probes all the time."""

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import SECONDS, TEXT, bootstrap_option
from moldau.cli.output import print_json, say

if TYPE_CHECKING:
    from moldau.probe.measures import Measure
    from moldau.probe.prober import ProbeReport


@click.command("probe")
@bootstrap_option
@click.option("--topic", type=TEXT, default="_probe", show_default=True, help="The canary topic; made if it is missing.")
@click.option("--mirror", "mirrors", metavar="HOST:PORT", type=TEXT, multiple=True, help="A cluster that a mirror brings the topic to.")
@click.option("--mirror-topic", metavar="NAME", type=TEXT, help="What the mirrors call the topic.  [default: as --topic]")
@click.option("--interval", type=SECONDS, default=10.0, show_default=True, metavar="SECONDS", help="Report so often.")
@click.option("--once", is_flag=True, help="End with the first report that has a probe of each broker and mirror.")
@click.option(
    "--rate", type=click.FloatRange(0.1, 100), default=5.0, show_default=True, metavar="N", help="Probes a second to each broker."
)
@click.option("--replication-factor", "-r", type=click.IntRange(1, 9), default=1, show_default=True, help="Replicas of a new partition.")
@click.option("--limit", type=SECONDS, default=5.0, show_default=True, metavar="SECONDS", help="A probe that takes longer is lost.")
@click.option("--mirror-limit", type=SECONDS, default=30.0, show_default=True, metavar="SECONDS", help="The same on its way over a mirror.")
@click.option(
    "--min-availability",
    type=click.FloatRange(0, 100),
    default=99.0,
    show_default=True,
    metavar="PERCENT",
    help="Exit code 1 if a broker or a mirror had less in the last interval.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document an interval.")
def probe(
    bootstrap: str,
    topic: str,
    mirrors: tuple[str, ...],
    mirror_topic: str | None,
    interval: float,
    once: bool,
    rate: float,
    replication_factor: int,
    limit: float,
    mirror_limit: float,
    min_availability: float,
    as_json: bool,
) -> None:
    """Send probes to a topic with a partition for each broker, read them, and report until Ctrl-C.

    For each broker: the share of probes that it acknowledged in time, as the leader of its partition, how long that took (half of them and
    99 of 100), and how long until they were read. For each --mirror: the same from here to that cluster; its file has to include the topic
    by its exact name. Brokers that come get a partition, and leaders that moved are elected again.
    """
    from moldau.model.extras import require

    if bootstrap in mirrors:
        raise click.BadParameter(
            f"{bootstrap} is the cluster that is probed; a mirror brings the topic to another one", param_hint="--mirror"
        )
    require("client", "a probe")
    from moldau.probe.prober import ProbeOptions, Prober

    logging.getLogger("moldau.client").setLevel(logging.ERROR)  # what librdkafka says of brokers that are away is in the measures
    options = ProbeOptions(
        bootstrap,
        topic,
        replication_factor,
        rate,
        limit,
        dict.fromkeys(mirrors, mirror_topic or topic),
        mirror_limit,
    )
    availability = 1.0
    with Interruptions():
        try:
            with Prober(options) as prober:
                for report in prober.run(interval):
                    availability = report.availability
                    _print(report, as_json=as_json)
                    if once and report.is_decided:
                        break
        except TimeoutError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            pass
    if availability * 100 < min_availability:
        click.get_current_context().exit(FAILED)


def _print(report: "ProbeReport", *, as_json: bool) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if as_json:
        brokers = [{"broker": each.broker, **_json(each.acknowledged), "end_to_end": _json(each.read)} for each in report.brokers]
        mirrors = [{"mirror": bootstrap, **_json(measure)} for bootstrap, measure in report.mirrors.items()]
        print_json({"time": now, "brokers": brokers, "mirrors": mirrors})
        return
    for each in report.brokers:
        say(f"{now} broker {each.broker}: {_share(each.acknowledged)}, acknowledged {_times(each.acknowledged)}, read {_times(each.read)}")
    for bootstrap, measure in report.mirrors.items():
        say(f"{now} mirror to {bootstrap}: {_share(measure)}, read there {_times(measure)}")


def _share(measure: "Measure") -> str:
    if measure.availability is None:
        return "no probe has ended"
    return f"{measure.availability:.1%} of {measure.ended:,}"


def _times(measure: "Measure") -> str:
    """The median and the 99th percentile."""
    if measure.p50_s is None or measure.p99_s is None:
        return "never"
    return f"p50 {measure.p50_s * 1000:.1f} ms p99 {measure.p99_s * 1000:.1f} ms"


def _json(measure: "Measure") -> dict[str, Any]:
    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * 1000, 3)

    return {
        "probes": measure.ended,
        "in_time": measure.in_time,
        "availability": measure.availability,
        "p50_ms": ms(measure.p50_s),
        "p99_ms": ms(measure.p99_s),
    }
