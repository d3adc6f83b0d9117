"""The file of tiers: what it has as values, and for each mistake the line and what is allowed (missions F3, G1, H2)."""

import pytest

from moldau.audit.tree import read_tree
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.plan.values import Mode
from moldau.model.toml_table import PlanFileError
from moldau.tiers.audit_trees import audit_trees
from moldau.tiers.file import parse_tiers, read_tiers
from moldau.tiers.processes import processes
from moldau.tiers.values import Tiers
from moldau.topology.file import read_topology
from moldau.topology.values import ClusterKind, TopologyError
from support.pages import ROOT

LAPTOP = ROOT / "examples" / "laptop.toml"
SMALL = """\
name = "small"
[clusters.ewr]
kind = "local"
datacenter = "EWR"
port = 1000
[clusters.jfk]
kind = "local"
datacenter = "JFK"
port = 1001
settings = { log.retention.hours = 48, "auto.create.topics.enable" = false }
[clusters.all]
kind = "aggregate"
datacenter = "EWR"
brokers = 3
port = 1002
[registries.main]
cluster = "all"
port = 1005
[categories.tracking]
clusters = { EWR = "ewr", JFK = "jfk" }
aggregates = ["all"]
[topics.orders]
category = "tracking"
configs = { retention.ms = 172800000 }
[mirrors.merge]
from = ["ewr", "jfk"]
to = "all"
mode = "merge"
topics.include = ["orders", "web[.].*"]
"""
MIRROR_LINE = SMALL.splitlines().index("[mirrors.merge]") + 1


def tiers(text: str = SMALL) -> Tiers:
    return parse_tiers(text, "t.toml")


def error_of(text: str) -> str:
    with pytest.raises(PlanFileError) as caught:
        parse_tiers(text, "t.toml")
    return str(caught.value)


def test_clusters_registries_and_categories_are_where_the_file_has_them() -> None:
    topology = tiers().topology
    assert [(each.name, each.kind, each.bootstrap) for each in topology.clusters.values()] == [
        ("ewr", ClusterKind.LOCAL, "127.0.0.1:1000"),
        ("jfk", ClusterKind.LOCAL, "127.0.0.1:1001"),
        ("all", ClusterKind.AGGREGATE, "127.0.0.1:1002,127.0.0.1:1003,127.0.0.1:1004"),
    ]
    assert topology.clusters["jfk"].settings == {"log.retention.hours": "48", "auto.create.topics.enable": "false"}
    # a client finds the local cluster of its data centre, or the aggregate, and the registry
    assert topology.place("tracking", "JFK") == ("127.0.0.1:1001", "http://127.0.0.1:1005")
    assert topology.place("tracking", "JFK", aggregate=True).bootstrap == topology.clusters["all"].bootstrap


@pytest.mark.parametrize(
    ("category", "datacenter", "problem"),
    [
        ("logs", "EWR", "t.toml: there is no category 'logs'; there are tracking"),
        ("tracking", "EWRX", "t.toml: there is no data centre 'EWRX', did you mean 'EWR'?; there are EWR, JFK"),
    ],
)
def test_a_place_that_is_not_there_is_an_error_with_what_there_is(category: str, datacenter: str, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        tiers().topology.place(category, datacenter)
    assert str(caught.value) == problem


def test_a_category_has_no_cluster_where_the_file_names_none() -> None:
    topology = tiers(SMALL.replace(', JFK = "jfk"', "")).topology
    with pytest.raises(TopologyError, match=r"t.toml:19: category tracking has no cluster in JFK, only in EWR"):
        topology.place("tracking", "JFK")


def test_a_cluster_that_runs_elsewhere_is_named_by_its_addresses_and_not_started() -> None:
    text = SMALL.replace("port = 1000", 'bootstrap.servers = "a:1,b:2"').replace(
        'cluster = "all"\nport = 1005', 'url = "http://registry:8081"'
    )
    found = tiers(text)
    assert found.topology.place("tracking", "EWR") == ("a:1,b:2", "http://registry:8081")
    names = [each.name for each in processes(found, "/d", loads=True)]
    assert names == ["broker.jfk", "cluster.all", "mirror.merge"]


def test_a_mirror_is_a_plan_between_clusters_and_its_own_file_is_the_same_plan() -> None:
    (mirror,) = tiers().mirrors
    assert (mirror.sources, mirror.target, mirror.plan.mode, mirror.line) == (("ewr", "jfk"), "all", Mode.MERGE, MIRROR_LINE)
    assert parse_plan(mirror.text, "m.toml") == mirror.plan
    # also with everything that such a file may have
    text = SMALL + 'naming = "source.topic"\n[mirrors.merge.start]\ndefault = 2026-11-01T00:00:00Z\n[mirrors.merge.limits]\nlinger.ms = 5\n'
    (mirror,) = tiers(text).mirrors
    assert mirror.plan.limits.linger_ms == 5
    assert parse_plan(mirror.text, "m.toml") == mirror.plan


def test_a_copy_is_a_plan_with_one_source() -> None:
    copy = '[mirrors.copy]\nfrom = ["all"]\nto = "ewr"\nmode = "copy"\ntopics.include = ["orders"]\n'
    mirror = tiers(SMALL + copy).mirrors[1]
    assert parse_plan(mirror.text, "m.toml") == mirror.plan
    wrong = SMALL + copy.replace('["all"]', '["all", "jfk"]')
    assert error_of(wrong) == f"t.toml:{len(wrong.splitlines()) - 1}: [mirrors.copy] mode: a copy has one source, not all, jfk"


MISTAKES = [
    ('name = "small"', "", "t.toml:1: name: is missing; it is a text"),
    ('kind = "local"', 'kind = "lokal"', 't.toml:3: [clusters.ewr] kind: must be "local" or "aggregate" or "offline", not \'lokal\''),
    (
        "port = 1000",
        "",
        "t.toml:2: [clusters.ewr] port: is missing: the port of the first broker; or bootstrap.servers of a cluster that runs elsewhere",
    ),
    ("port = 1002", "port = 65534", "t.toml:15: [clusters.all] port: must be from 1 to 65,533, not 65,534"),
    (
        "log.retention.hours = 48",
        "log.retention.hour = 48",
        "t.toml:10: [clusters.jfk.settings] log.retention.hour: unknown configuration 'log.retention.hour', did you mean",
    ),
    (
        "log.retention.hours = 48",
        "broker.id = 48",
        "t.toml:10: [clusters.jfk.settings] broker.id: not for all brokers; ids are 1 to --brokers",
    ),
    (
        'JFK = "jfk"',
        'JFK = "all"',
        "t.toml:20: [categories.tracking.clusters] JFK: cluster all is aggregate in EWR, not the local one",
    ),
    ('aggregates = ["all"]', 'aggregates = ["jfk"]', "t.toml:21: [categories.tracking] aggregates: cluster jfk is local, not aggregate"),
    (
        "[categories.tracking]",
        "[categories.trackin]",
        "t.toml:19: [categories.trackin]: there is no category 'trackin', did you mean 'tracking'?; there are queuing, metrics, logs,",
    ),
    ("retention.ms = 172800000", "retention.ms = -7", "t.toml:24: [topics.orders.configs] retention.ms: "),
    ('to = "all"', 'to = "al"', "t.toml:27: [mirrors.merge] to: there is no cluster 'al', did you mean 'all'?; there are ewr, jfk, all"),
    ('from = ["ewr", "jfk"]', 'from = ["ewr", "ewr"]', "t.toml:26: [mirrors.merge] from: 'ewr' comes twice"),
    ("web[.].*", "web[.*", "t.toml:29: [mirrors.merge.topics] include: 'web[.*' is not a regular expression"),
]


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES)
def test_each_mistake_is_named_with_its_line(right: str, wrong: str, message: str) -> None:
    assert right in SMALL
    assert error_of(SMALL.replace(right, wrong, 1)).startswith(message)


def test_the_example_has_three_data_centres_and_all_processes() -> None:
    """Claim: the commands of all processes come from the file, those that start first come first; loads only when asked for."""
    found = read_tiers(LAPTOP)
    assert found.topology.datacenters == ("EWR", "JFK", "LGA")
    assert read_topology(LAPTOP) == found.topology
    words = {each.name: " ".join(each.words) for each in processes(found, "/d", loads=True)}
    assert list(words) == [
        *("broker.ewr", "broker.jfk", "broker.lga", "cluster.aggregate", "broker.offline"),
        *("registry.main", "load.lake"),
        *("auditor.ewr", "auditor.jfk", "auditor.lga", "auditor.aggregate", "auditor.offline"),
        *("mirror.aggregate", "mirror.offline"),
    ]
    assert words["broker.ewr"] == "serve --listen 127.0.0.1:19010 --data /d/clusters/ewr --log-level warning"
    assert words["cluster.aggregate"] == "cluster up --data /d/clusters/aggregate --brokers 3 --port 19040"
    assert words["auditor.ewr"] == "audit run --bootstrap 127.0.0.1:19010 --tier ewr.local --interval 10"
    assert words["mirror.offline"] == "mirror run /d/mirrors/offline.toml --instance 1"
    load = "load --bootstrap 127.0.0.1:19050 --pattern departures --to /d/lake --name lake --tier lake --every 10"
    assert words["load.lake"] == f"{load} --registry http://127.0.0.1:19081"
    assert "load.lake" not in [each.name for each in processes(found, "/d", loads=False)]


def test_the_audit_compares_each_tier_with_those_that_its_mirrors_read() -> None:
    (text,) = audit_trees(read_tiers(LAPTOP), loads=True).values()
    tree = {tier.name: tier for tier in read_tree(text).tiers}
    assert {name: tier.sources for name, tier in tree.items()} == {
        "producer": (),
        "ewr.local": ("producer",),
        "jfk.local": ("producer",),
        "lga.local": ("producer",),
        "aggregate": ("ewr.local", "jfk.local", "lga.local"),
        "offline": ("aggregate",),
        "lake": ("offline",),
    }
    # a load that does not run counts nothing
    (text,) = audit_trees(read_tiers(LAPTOP), loads=False).values()
    assert "lake" not in read_tree(text).names
    assert tree["ewr.local"].datacenters == ("EWR",)
    assert tree["offline"].bootstrap == "127.0.0.1:19050"


def test_a_cluster_without_an_auditor_has_its_own_name_as_a_tier() -> None:
    (text,) = audit_trees(tiers(SMALL + '[auditors.all]\ntier = "everything"\n'), loads=True).values()
    assert {tier.name: tier.sources for tier in read_tree(text).tiers[1:]} == {
        "ewr": ("producer",),
        "jfk": ("producer",),
        "everything": ("ewr", "jfk"),
    }
