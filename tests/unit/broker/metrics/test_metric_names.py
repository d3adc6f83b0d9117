"""The names of metrics are a contract with dashboards: they stand in a golden file, and keep to the rules that promtool checks."""

import math
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moldau.adapters.metrics_server import render
from moldau.broker.collector import collect
from moldau.model.steps import drain
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from support.broker_world import BrokerWorld

GOLDEN = Path(__file__).parents[3] / "golden" / "metric-names.txt"
PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"

OF_OTHERS = ("moldau_audit_", "moldau_mirror_")
"""Names of metrics that are not the broker's."""

NAME = re.compile(r"[a-z_][a-z0-9_]*")
LABEL = re.compile(r"[a-z][a-z0-9_]*")
TYPE_IN_NAME = re.compile(r"_(?:gauge|counter|summary|histogram|untyped)(?:_|$)")
NO_BASE_UNIT = re.compile(r"_(?:ms|us|ns|milliseconds|microseconds|minutes|hours|kb|mb|kilobytes|megabytes|percent)(?:_|$)")
AS_KAFKA_HAS_THEM = {
    "kafka_server_socketservermetrics_connection_count",
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "kafka_log_logcleanermanager_max_dirty_percent",
}
"""Names of Kafka's that break a rule."""


@pytest.fixture(scope="module")
def text() -> str:
    """A page with every family, and samples in all but those of errors that the run does not have."""
    world = BrokerWorld()
    world.create_topic("t")
    client = world.connect()
    client.produce("t", b"a")
    client.produce("nothing", b"a")
    client.fetch("t", 0)
    for kind, key in ((0, "group"), (1, "id")):
        client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
    rendered = render(drain(collect(world.broker))).decode()
    world.stop()
    return rendered


def test_names_kinds_and_labels_are_those_of_the_golden_file(text: str) -> None:
    lines = []
    for family in text_string_to_metric_families(text):
        labels = sorted({label for sample in family.samples for label in sample.labels})
        lines.append(f"{family.name} {family.type} {','.join(labels)}".rstrip())
    ours = [line for line in lines if not line.startswith("process_")]
    assert "\n".join(sorted(ours)) + "\n" == GOLDEN.read_text()


def test_one_replica_is_enough_of_one_and_not_of_two() -> None:
    world = BrokerWorld(min_insync_replicas=2)
    world.create_topic("t")
    for under, at in ((0, 1), (1, 0)):
        text = render(drain(collect(world.broker))).decode()
        assert f"\nkafka_server_replicamanager_underminisrpartitioncount {under}.0\n" in text
        assert f"\nkafka_server_replicamanager_atminisrpartitioncount {at}.0\n" in text
        world.lack_replicas("t")


def test_the_page_describes_every_name() -> None:
    described = {name for name in re.findall(r"`((?:kafka|moldau)_\w+)", PAGE.read_text()) if not name.startswith(OF_OTHERS)}
    names = [line.split()[:2] for line in GOLDEN.read_text().splitlines()]
    assert {name + ("_total" if kind == "counter" else "") for name, kind in names} == described


def test_the_text_keeps_to_the_rules(text: str) -> None:
    """Those of `promtool check metrics`, which is not everywhere, and of the format."""
    assert text.endswith("\n")
    seen: set[str] = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in seen, "twice"
        seen.add(family.name)
        assert NAME.fullmatch(family.name)
        assert family.documentation.endswith(".") or family.name.startswith("process_")
        assert family.type in ("counter", "gauge", "summary")
        assert not TYPE_IN_NAME.search(family.name)
        assert not family.name.endswith(("_sum", "_bucket", "_total"))
        if family.name not in AS_KAFKA_HAS_THEM:
            assert not family.name.endswith("_count")
            assert not NO_BASE_UNIT.search(family.name)
        rows = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(rows) == len(set(rows)), f"{family.name}: a sample twice"
        for sample in family.samples:
            suffixes = {"counter": ("_total",), "gauge": ("",), "summary": ("", "_sum", "_count")}[family.type]
            assert sample.name in [family.name + suffix for suffix in suffixes]
            assert all(LABEL.fullmatch(label) for label in sample.labels)
            assert math.isfinite(sample.value)
            assert family.type != "counter" or sample.value >= 0
            assert ("quantile" in sample.labels) == (family.type == "summary" and sample.name == family.name)


def test_quantiles_are_in_order(text: str) -> None:
    for family in text_string_to_metric_families(text):
        found: dict[str, list[float]] = {}
        for sample in family.samples:
            if "quantile" in sample.labels:
                found.setdefault(sample.labels["request"], []).append(sample.value)
        assert all(values == sorted(values) for values in found.values())
