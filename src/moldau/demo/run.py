"""The demonstration from beginning to end.

Its directory holds everything: the brokers' data, the tables, logs, the picture, and ``demo.json``, which has what it was made from. A
second run finds all there and adds nothing; a run after one that was killed adds what is left. One run at a time has the directory.
"""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from moldau.adapters.whole_file import write_whole
from moldau.demo.inputs import BadInputLine, InputEvent
from moldau.demo.options import BROKER_FOLDER, CLUSTER_FOLDER, TIERS_FOLDER, DemoError, DemoOptions, check_description, sole_user
from moldau.demo.report import DemoReport, GroupLag, ReportStep, Sizes

if TYPE_CHECKING:
    from moldau.audit.verdicts import Report as AuditReport
    from moldau.demo.tiers import Timeline

GROUP = "moldau-demo"
"""The load's consumer group."""
_SHORT_LIVED = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.openCostInBytes": "0",
}
"""A session of a minute ends before the second compiler has earned what it costs. Its queries are small: plans are not changed while they
run, and files of a few KB, of which each counts as 4 MB otherwise, are read by as many tasks as there are cores."""


class RunProgress(Protocol):
    """The listener of a run. Steps may run side by side; any thread may call it."""

    def begin(self, name: str, total: int | None) -> None:
        """A step begins, with so many events to come if that is known."""

    def advance(self, name: str, done: int) -> None:
        """So many of them are done."""

    def end(self, name: str, events: int, seconds: float) -> None:
        """The step has ended."""


def run_demo(options: DemoOptions, progress: RunProgress) -> DemoReport:
    """Do it all. DemoError, InputError, PublishError, ChildError, what loads raise, and what Spark raises."""
    from moldau.lake.tables.delta import uri_of

    directory = options.directory.resolve()
    try:
        uri_of(str(directory))
    except ValueError as error:
        raise DemoError(str(error)) from None
    with sole_user(directory):
        brokers = check_description(directory, options)
        return _Run(options, directory, brokers, progress).all_steps()


class _Run:
    """One run: steps, and how long they took."""

    def __init__(self, options: DemoOptions, directory: Path, brokers: int, progress: RunProgress) -> None:
        self._options = options
        self._directory = directory
        self._brokers = brokers
        self._progress = progress
        self._topic = options.input.service
        self._steps: list[ReportStep] = []

    def all_steps(self) -> DemoReport:
        options = self._options
        schemas = self._step("read the columns", None, lambda: (options.input.schemas(), 0))
        if options.refuse_bad_lines and not options.input.trusted:
            self._step("check the lines", options.input.size_hint(), self._refuse_bad_lines)
        servers = self._servers()
        with ExitStack() as going:
            going.callback(servers.stop)
            beside = going.enter_context(ThreadPoolExecutor(1))
            starting = beside.submit(self._step, "start Spark", None, lambda: (self._start_spark(), 0))
            self._step("start brokers and registry", None, lambda: (servers.start(), 0))
            orders, there = self._step("look at the topic", None, lambda: self._orders(servers, schemas))
            spark = starting.result()
            going.callback(spark.stop)
            return self._pipeline(going, servers, spark, orders, there)

    def _servers(self) -> Any:
        from moldau.demo.brokers import BrokerProcess, ClusterProcesses
        from moldau.demo.tier_processes import TierProcesses

        if not self._options.small:
            file, data, log = (self._directory / name for name in ("topology.toml", TIERS_FOLDER, "tiers.log"))
            return TierProcesses(file, data, log, self._topic, self._options.partitions)
        if self._brokers == 1:
            return BrokerProcess(self._directory / BROKER_FOLDER, self._directory / "broker.log")
        return ClusterProcesses(self._directory / CLUSTER_FOLDER, self._directory / "cluster.log", self._brokers)

    def _pipeline(self, going: ExitStack, servers: Any, spark: Any, orders: Any, there: int) -> DemoReport:
        """Hosts, auditor and load side by side; then their reports. The topic holds `there` events."""
        from moldau.audit.edges import edges_of
        from moldau.demo.flights import LATE_BEFORE_MS
        from moldau.demo.loading import DemoLoads, group_lag
        from moldau.demo.publish import HostPublishers, PublishTotals
        from moldau.demo.report import ask_all, prove
        from moldau.demo.stream_job import with_stream_tier
        from moldau.demo.tiers import TierWatch
        from moldau.lake.table import read_table

        options, source, progress, topic = self._options, self._options.input, self._progress, self._topic
        streams = options.file is None
        tree = with_stream_tier(servers.tree, servers.cluster_tier) if streams else servers.tree
        names = {tier: f"counted by tier {tier}" for tier in tree.names}
        for name in names.values():
            progress.begin(name, source.size_hint())

        def on_totals(totals: Mapping[str, int]) -> None:
            for tier in tree.names:
                progress.advance(names[tier], totals[tier])

        watch = TierWatch(servers.audited, tree, topic, on_totals)
        going.callback(watch.stop)
        servers.start_audit(self._directory)
        begun = time.monotonic()
        crash = self._crash(going, servers, there)
        publishing = HostPublishers(orders, self._directory, crash.progress if crash is not None else lambda _host, _sent: None)
        going.callback(publishing.stop)
        streaming = self._stream_job(going, servers, there)
        loading = DemoLoads(spark, servers, self._directory / "lake", topic, bad_lines=not options.refuse_bad_lines, cores=options.cores)
        lag_before = group_lag(servers.bootstrap, GROUP, topic)
        load_begun = time.monotonic()

        def loaded(publishing: HostPublishers) -> PublishTotals:
            """When all that these hosts publish is in the table."""
            arrived = servers.arrival(watch)
            while True:
                over = publishing.over and arrived()
                loading.round()
                if over:
                    return publishing.result()

        published = loaded(publishing)
        self._ended("publish", published.sent, publishing.ended - begun)
        if streaming is not None and there < (source.size_hint() or 0):
            self._step("wait until events are late", None, lambda: _no_events(lambda: streaming.wait_for_watermark(LATE_BEFORE_MS)))
            late = HostPublishers([replace(each, late=True) for each in orders], self._directory, lambda _host, _sent: None)
            going.callback(late.stop)
            published += loaded(late)
        self._ended("load", loading.rows, time.monotonic() - load_begun)
        self._note_planted(published.planted_lines)
        crashed = self._step("wait for the killed broker", None, lambda: (crash.finish(), 0)) if crash is not None else None

        def end_stream() -> Any:
            return None if streaming is None else self._step("end the stream job", None, lambda: (streaming.finish(), 0))

        def compare() -> "tuple[Any, AuditReport, Timeline]":
            status = end_stream()  # it is one of the tiers
            self._step("let the auditor end", None, lambda: _no_events(servers.end_audit))
            found: tuple[AuditReport, Timeline] = self._step("compare the tiers", None, lambda: (watch.finish(servers.audit_limit_s), 0))
            return status, *found

        with ThreadPoolExecutor(1) as beside:  # the audit and the check know nothing of each other
            comparing = beside.submit(compare)
            self._step("compact the table", None, lambda: _no_events(loading.compact))
            table = read_table(spark, loading.job.table)
            proof = self._step("check the table", None, lambda: _with_rows(prove(spark, table, source, published.planted_lines)))
            status, audit, timeline = comparing.result()
        for tier, name in names.items():
            progress.end(name, timeline.moments[-1][1].get(tier, 0), timeline.moments[-1][0])
        loading.set_watermark(audit)
        late_lines = {each.line for each in source.events() if isinstance(each, InputEvent) and source.late(each)} if streams else set()
        if streaming is not None:
            from moldau.demo.stream_job import compare as compare_stream

            ends = (streaming.kills, streaming.restarts)
            figures = self._step(
                "compare the stream job",
                None,
                lambda: (compare_stream(spark, table, streaming.table, servers.bootstrap, status, ends, late_lines), 0),
            )
        questions = self._step(
            "ask the table",
            None,
            lambda: (ask_all(spark, table, servers.bootstrap, topic, watch.produced(), flights=streams, late=late_lines), 0),
        )
        picture = self._directory / "tiers.svg"
        report = DemoReport(
            input=source.name,
            topic=topic,
            table=loading.job.table,
            read=published.read,
            bad_lines=published.bad,
            bad_shown=published.bad_shown,
            audit=audit,
            proof=proof,
            dead_letters=loading.dead_letters(),
            planted_lines=published.planted_lines,
            sent=published.sent,
            loaded=loading.rows,
            sent_bytes=published.sent_bytes,
            sizes=self._sizes(loading.job.table, servers.data),
            brokers=servers.brokers,
            steps=tuple(self._steps),
            questions=questions,
            lag=GroupLag(GROUP, lag_before, group_lag(servers.bootstrap, GROUP, topic)),
            picture=str(picture),
            crash=crashed,
            edges=tuple(edges_of(audit, tree)),
            stream=figures if streaming is not None else None,
        )
        write_whole(picture, servers.picture(timeline, report, tree))
        return report

    def _step(self, name: str, total: int | None, work: Callable[[], tuple[Any, int]]) -> Any:
        """Run one step, which returns how many events it handled."""
        self._progress.begin(name, total)
        begun = time.monotonic()
        result, events = work()
        self._ended(name, events, time.monotonic() - begun)
        return result

    def _ended(self, name: str, events: int, seconds: float) -> None:
        self._steps.append(ReportStep(name, events, seconds))
        self._progress.end(name, events, seconds)

    def _refuse_bad_lines(self) -> tuple[None, int]:
        source = self._options.input
        count = 0
        for item in source.events():
            if isinstance(item, BadInputLine):
                raise DemoError(f"{source.name}:{item.line}: {item.reason} (with --bad-lines dead-letter such lines are kept apart)")
            count += 1
            if count % 2_000 == 0:
                self._progress.advance("check the lines", count)
        return None, count

    def _orders(self, servers: Any, schemas: tuple[Mapping[str, Any], ...]) -> tuple[Any, int]:
        """One for each host, with what the topic holds; and how many events that is."""
        from moldau.demo.host import Orders
        from moldau.demo.publish import as_bits, lines_there
        from moldau.registry.client import RegistryClient
        from moldau.tracking.schemas.event_schema import event_schema

        options, topic = self._options, self._topic
        servers.prepare(topic, options.partitions)
        with RegistryClient(servers.registry) as registry:  # load and stream job refuse to begin without any, and a bad line may be first
            registry.register(f"{topic}-value", event_schema(schemas[0]).text)
        hosts = len(options.input.hosts)
        places = servers.published_to(hosts)
        there = {
            bootstrap: lines_there(bootstrap, servers.registry, topic, event_schema(schemas[-1]).text)
            for bootstrap, _ in dict(places).items()
        }
        orders = [
            Orders(
                bootstrap=bootstrap,
                registry=servers.registry,
                topic=topic,
                host=number,
                file=str(options.file.resolve()) if options.file else None,
                key=options.key,
                time=options.time,
                compression=options.compression,
                there=as_bits(there[bootstrap]),
                plant=options.plant_loss and number == hosts - 1,
                planted=self._planted.exists(),
                datacenter=datacenter,
                late=None if options.file is not None else False,
            )
            for number, (bootstrap, datacenter) in enumerate(places)
        ]
        count = sum(map(len, there.values()))
        return (orders, count), count

    def _crash(self, going: ExitStack, servers: Any, there: int) -> Any:
        """Of a broker while hosts publish; None where it is the only one, or nothing is left to publish."""
        from moldau.client.cluster import Cluster
        from moldau.demo.crash import BrokerCrash

        to_send = (self._options.input.size_hint() or 0) - there
        if not servers.crashes_in or to_send <= 0:
            return None
        cluster = going.enter_context(Cluster(servers.crashes_in, client_id="moldau-demo"))
        crash = BrokerCrash(servers, cluster, self._topic, to_send, mirror=servers.killed_mirror)
        going.callback(crash.stop)
        return crash

    def _stream_job(self, going: ExitStack, servers: Any, there: int) -> Any:
        """Over the flights; killed half way if most of them are still to be published."""
        from moldau.demo.stream_job import DemoStreamJob

        if self._options.file is not None:
            return None
        events = self._options.input.size_hint() or 0
        job = DemoStreamJob(
            servers, self._topic, self._directory, cores=self._options.cores, to_read=events if there * 2 < events else None
        )  # fmt: skip
        going.callback(job.stop)
        return job

    @property
    def _planted(self) -> Path:
        """There once the loss is planted; a run that is killed between the two plants another one."""
        return self._directory / "planted.json"

    def _note_planted(self, lines: tuple[int, ...]) -> None:
        if lines and not self._planted.exists():
            write_whole(self._planted, json.dumps({"lines": lines}))

    def _start_spark(self) -> Any:
        from moldau.lake.session import start_spark

        return start_spark("moldau demo", str(self._directory / "spark"), cores=self._options.cores, settings=_SHORT_LIVED)

    def _sizes(self, table: str, logs: Path) -> Sizes:
        from moldau.lake.tables.opening import opened

        snapshot = opened(table)
        files = snapshot.files()
        log = sum(file.stat().st_size for file in logs.glob(f"**/{self._topic}-*/*.log"))
        return Sizes(log, sum(file.size for file in files), len(files), snapshot.version)


def _no_events(work: Callable[[], object]) -> tuple[None, int]:
    work()
    return None, 0


def _with_rows(proof: Any) -> tuple[Any, int]:
    return proof, proof.rows
