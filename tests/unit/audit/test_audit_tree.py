"""The tree of tiers: what a file may say, and what comparing several clusters with what they feed says, story by story."""

import pytest

from moldau.audit.forgetting import SETTLED_MS, forget
from moldau.audit.rules import Rules
from moldau.audit.tree import Feed, Tier, TierTree, TreeError, read_tree
from moldau.audit.verdicts import Report, Verdict, summaries
from moldau.tracking.audit_record import AuditRecord, new_guid
from moldau.tracking.counts import CountKey
from support.audit_events import MINUTE, Host
from support.audit_ledger import START, Ledger, events

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
JFK = Host("jfk-1", "jfk", instance=b"inst-jfk")
FILE = """
[tiers.lake]
from = "offline"

[tiers.aggregate]
from = ["ewr.local", "jfk.local"]
bootstrap = "aggregate:9092"

[tiers.offline]
from = "aggregate"

[tiers."ewr.local"]
bootstrap = "ewr-1:9092,ewr-2:9092"

[tiers."jfk.local"]
datacenters = ["jfk", "lga"]
"""
TREE = read_tree(FILE)
LOCALS = ("ewr.local", "jfk.local")
WINDOW = 10 * MINUTE


class TestTheFile:
    """What it means, and what is refused."""

    def test_tiers_are_ordered_from_the_producers_down(self) -> None:
        """Claim: whatever their order in the file; a tier without `from` takes from producers, and its name has its datacenter."""
        assert TREE.names == ("producer", "ewr.local", "jfk.local", "aggregate", "offline", "lake")
        assert TREE.locals == (
            Tier("ewr.local", ("producer",), ("ewr",), "ewr-1:9092,ewr-2:9092"),
            Tier("jfk.local", ("producer",), ("jfk", "lga")),
        )
        assert TREE.above("offline") == {"producer", "ewr.local", "jfk.local", "aggregate"}

    def test_a_chain_is_a_tree(self) -> None:
        names = ("producer", "local", "lake")
        assert TierTree.chain(names).tiers == (Tier("producer"), Tier("local", ("producer",)), Tier("lake", ("local",)))
        assert TierTree.of(TierTree.chain(names).tiers) == TierTree.chain(names)

    def test_a_tier_that_does_not_count_a_topic_is_passed_over(self) -> None:
        """Claim: what it takes from is compared with what takes from it; of producers those that are at home in it."""
        every = TREE.names
        assert TREE.feeds("aggregate", every) == (Feed("ewr.local"), Feed("jfk.local"))
        without = [name for name in every if name not in ("jfk.local", "offline")]
        assert TREE.feeds("aggregate", without) == (Feed("ewr.local"), Feed("producer", frozenset({"jfk.local"})))
        assert TREE.feeds("lake", without) == (Feed("aggregate"),)
        assert TREE.feeds("aggregate", ("producer", "aggregate")) == (Feed("producer", frozenset(LOCALS)),)
        assert TREE.feeds("producer", every) == ()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "there is no table [tiers.NAME]"),
            ("tier = 1", "tier is unknown; there are only tables [tiers.NAME]"),
            ("tiers = 1", "there is no table [tiers.NAME]"),
            ("[tiers]\na = 1", "tiers.a is a table, not 1"),
            ("[tiers.a]\nform = 'b'", "tier a: form is unknown, did you mean 'from'?; there are from, bootstrap, datacenters"),
            ("[tiers.a]\nfrom = 1", "tier a: from is a name or a list of names, not 1"),
            ("[tiers.a]\nbootstrap = 'x:y'", "tier a: bootstrap: "),
            (
                "[tiers.local]\n[tiers.b]\nfrom = 'locla'",
                "tier b takes from locla, and there is no tier of that name, did you mean 'local'?",
            ),
            ("[tiers.'a b']", "'a b': a tier's name has letters, digits, and . _ -"),
            ("[tiers.a]\nfrom = 'c'\n[tiers.b]\nfrom = 'a'\n[tiers.c]\nfrom = 'b'", "tiers take from each other in a circle: a, b, c"),
            ("[tiers.a]\n[tiers.b]\nfrom = ['a', 'a']", "tier b takes from one tier twice: a, a"),
            ("[tiers.a]\n[tiers.b]\nfrom = ['a', 'producer']", "tier b takes from producers, so it takes from no other tier"),
            (
                "[tiers.a]\n[tiers.b]\nfrom = 'a'\n[tiers.c]\nfrom = 'a'\n[tiers.d]\nfrom = ['b', 'c']",
                "tier d takes from b and from c, which both have what a has",
            ),
            ("[tiers.producer]\nfrom = 'a'\n[tiers.a]", "tier producer is that of the producers themselves, who take from no other"),
            ("x", "no TOML: "),
        ],
    )
    def test_what_is_no_tree(self, text: str, why: str) -> None:
        """Claim: the reason names the tier, and the setting or the nearest name."""
        with pytest.raises(TreeError) as refused:
            read_tree(text)
        assert str(refused.value).startswith(why)


class Clusters(Ledger):
    """Two local clusters under an aggregate, which feeds offline, which feeds the lake. Each host sends to the cluster of its airport."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = {"ewr.local": events(EWR, 100), "jfk.local": events(JFK, 60)}
        for host, values in ((EWR, self.sent["ewr.local"]), (JFK, self.sent["jfk.local"])):
            self.opens(host).counts("producer", values).closes(host)

    @property
    def everything(self) -> list[bytes]:
        """What both have sent."""
        return [value for values in self.sent.values() for value in values]

    def all_count(self, **instead: list[bytes]) -> "Clusters":
        """Each tier what it should have, or `instead`; all state then, when the window is long over, that this is everything."""
        should = {**self.sent, **dict.fromkeys(("aggregate", "offline", "lake"), self.everything)}
        for tier, values in should.items():
            self.wait(1000).counts(tier, instead.get(tier.replace(".", "_"), values))
        self.wait(60 * MINUTE)
        for tier in should:
            self.marks(tier)
        return self

    def compared(self) -> Report:
        """By the tree."""
        return self.report(tree=TREE)


def faults(report: Report) -> list[tuple[str, str, str, str, str]]:
    """Where, which host, and what."""
    return [
        (pair.lower_tier, "+".join(line.upper_tiers), line.host, line.verdict.value, line.note)
        for pair in report.pairs
        for line in pair.noteworthy
    ]


def test_an_aggregate_has_the_sum_of_its_locals() -> None:
    """Claim: each edge is compared by itself, and all of them agree."""
    report = Clusters().all_count().compared()
    assert [(each.upper_tier, each.lower_tier, each.upper.count, each.lower.count) for each in summaries(report)] == [
        ("producer", "ewr.local", 100, 100),
        ("producer", "jfk.local", 60, 60),
        ("ewr.local + jfk.local", "aggregate", 160, 160),
        ("aggregate", "offline", 160, 160),
        ("offline", "lake", 160, 160),
    ]
    assert report.complete
    assert set(report.watermarks.values()) == {START - 2 * MINUTE + WINDOW}


@pytest.mark.parametrize(
    ("instead", "found"),
    [
        ({"ewr_local": events(EWR, 97)}, ("ewr.local", "producer", "ewr-1", "loss", "3 of 100 missing")),
        ({"jfk_local": events(JFK, 61)}, ("jfk.local", "producer", "jfk-1", "duplication", "1 more than 60")),
        ({"jfk_local": []}, ("jfk.local", "producer", "jfk-1", "loss", "60 of 60 missing")),
    ],
)
def test_what_a_local_cluster_lost_is_its_own(instead: dict[str, list[bytes]], found: tuple[str, ...]) -> None:
    """Claim: of the clusters that take from producers the one at fault is named, also if it has nothing of the host."""
    ledger = Clusters()
    (cluster,) = instead
    ledger.sent[cluster.replace("_", ".")] = instead[cluster]
    report = ledger.all_count().compared()
    assert faults(report) == [found]
    assert report.watermarks["departures", "aggregate"] is None


def test_what_the_aggregate_lost_names_the_cluster_that_had_it() -> None:
    """Claim: the other edges are complete, and the host's loss is one of its own cluster's events."""
    ledger = Clusters()
    arrived = [value for value in ledger.everything if value != ledger.sent["jfk.local"][7]]
    report = ledger.all_count(aggregate=arrived, offline=arrived, lake=[*arrived, arrived[0]]).compared()
    assert faults(report) == [
        ("aggregate", "jfk.local", "jfk-1", "loss", "1 of 60 missing"),
        ("lake", "offline", "ewr-1", "duplication", "1 more than 100"),
    ]
    assert [report.watermarks["departures", tier] is None for tier in TREE.names[1:]] == [False, False, True, True, True]


def test_one_clusters_loss_is_not_made_good_by_anothers_duplication() -> None:
    ledger = Clusters()
    report = ledger.all_count(aggregate=[*ledger.everything[1:], ledger.everything[-1]]).compared()
    pair = next(pair for pair in report.pairs if pair.lower_tier == "aggregate")
    assert (pair.upper.count, pair.lower.count, pair.verdict) == (160, 160, Verdict.HIDDEN_LOSS)


def test_a_mark_vouches_for_its_own_cluster_alone() -> None:
    """Claim: an aggregate's window that agrees is not complete until all its locals have counted everything up to its end: a cluster
    that was heard of last before may have events that are known nowhere yet. What one local lost is a loss meanwhile."""
    ledger = Clusters()
    for tier in (*LOCALS, "aggregate", "offline", "lake"):
        ledger.counts(tier, ledger.sent.get(tier, ledger.everything)[: 95 if tier == "ewr.local" else None])
    ledger.marks("jfk.local").wait(60 * MINUTE).marks("ewr.local").marks("aggregate").marks("offline").marks("lake")
    report = ledger.compared()
    by_tier = {pair.lower_tier: pair for pair in report.pairs}
    assert by_tier["ewr.local"].verdict is Verdict.LOSS
    assert (by_tier["aggregate"].undecided, by_tier["aggregate"].settled) == (("jfk.local",), False)
    ledger.counts("ewr.local", ledger.sent["ewr.local"][95:]).wait(60 * MINUTE).marks("ewr.local")
    report = ledger.compared()
    verdicts = {pair.lower_tier: pair.verdict for pair in report.pairs}
    assert verdicts.pop("aggregate") is Verdict.NOT_COUNTED
    assert set(verdicts.values()) == {Verdict.COMPLETE}
    assert (report.alarming, report.decided, report.watermarks["departures", "lake"]) == (False, False, None)
    ledger.marks("jfk.local")
    assert ledger.compared().complete


def test_more_than_a_cluster_that_lags_has_counted_is_no_duplication() -> None:
    """Claim: of the upper tiers the one that the events are in has to have counted them; the others do not matter."""
    ledger = Clusters()
    ledger.sent = {"ewr.local": events(EWR, 100), "jfk.local": events(JFK, 40)}
    ledger.counts("jfk.local", ledger.sent["jfk.local"]).counts("ewr.local", ledger.sent["ewr.local"]).marks("jfk.local")
    arrived = [*events(EWR, 101), *events(JFK, 60)]
    ledger.wait(MINUTE).counts("aggregate", arrived).wait(60 * MINUTE).marks("ewr.local").marks("aggregate")
    lines = [each for each in faults(ledger.compared()) if each[0] == "aggregate"]
    assert [each[:4] for each in lines] == [
        ("aggregate", "ewr.local", "ewr-1", "duplication"),
        ("aggregate", "jfk.local", "jfk-1", "not counted yet"),
    ]


def test_an_instance_that_sends_elsewhere_is_at_home_there() -> None:
    """Claim: a service of Newark that was started against the other cluster is no loss of its own one and no duplication of that."""
    ledger, elsewhere = Clusters(), Host("ewr-2", "ewr", instance=b"inst-two")
    values = events(elsewhere, 10)
    ledger.opens(elsewhere).counts("producer", values).closes(elsewhere)
    ledger.sent["jfk.local"] = [*ledger.sent["jfk.local"], *values]
    assert ledger.all_count().compared().complete


def test_what_comes_back_from_another_cluster_is_a_duplication_there() -> None:
    """Claim: events of one local cluster in another one, by a mirror in a circle, are one too many each; their own cluster is complete."""
    ledger = Clusters()
    ledger.sent["jfk.local"] = [*ledger.sent["jfk.local"], *events(EWR, 5)]
    found = faults(ledger.all_count().compared())
    assert found[0] == ("jfk.local", "producer", "ewr-1", "duplication", "5 more than 0")
    assert {each[0] for each in found} == {"jfk.local"}


def test_a_cluster_that_does_not_count_a_topic_is_passed_over() -> None:
    """Claim: its auditor's pattern does not match; the producers at home in it are compared with the aggregate, and the others are not."""
    ledger = Clusters()
    ledger.say("open", "jfk.local", CountKey("", 0, "", "arrivals", "", "jfk.local"))
    ledger.counts("ewr.local", ledger.sent["ewr.local"]).counts("aggregate", ledger.everything[:-1])
    ledger.wait(60 * MINUTE).marks("ewr.local").marks("aggregate")
    report = ledger.report(tree=TierTree.of(TREE.tiers[:4]))
    assert [(each.upper_tier, each.lower_tier) for each in summaries(report)] == [
        ("producer", "ewr.local"), ("ewr.local + producer", "aggregate"),
    ]  # fmt: skip
    assert faults(report) == [("aggregate", "producer", "jfk-1", "loss", "1 of 60 missing")]


def test_clusters_that_share_a_name_vouch_each_for_itself() -> None:
    """Claim: two auditors of one tier's name are of two clusters: a mark of one is none of the other, and the report names both. Once a
    cluster has published no mark for a day it is one that was there before, and its name is another one's."""
    ledger, key = Ledger(), CountKey("", 0, "", "", "", "local")

    def mark(cluster: str) -> None:
        ledger.found.take(AuditRecord("open", new_guid(), ledger.now, "local", key, cluster=cluster))

    values = events(EWR, 10)
    mark("second")
    ledger.wait(1000).opens(EWR).counts("producer", values).closes(EWR).counts("local", values[1:]).wait(60 * MINUTE)
    mark("first")
    report = ledger.report()
    assert ([pair.verdict for pair in report.pairs], report.shared) == ([Verdict.NOT_COUNTED], {"local": ("first", "second")})
    ledger.wait(SETTLED_MS)
    mark("first")
    report = ledger.report()
    assert ([pair.verdict for pair in report.pairs], report.shared) == ([Verdict.LOSS], {})


def test_settled_windows_keep_the_share_of_each_tier() -> None:
    """Claim: a watch of months forgets what agrees, and shows the same sums and watermarks; events that come later reopen the window."""
    ledger = Clusters()
    ledger.all_count().wait(SETTLED_MS)
    rules = Rules(now_ms=ledger.now, tree=TREE)
    before = ledger.compared()
    forget(ledger.found, rules)
    after = ledger.compared()
    assert (len(before.pairs), after.pairs) == (5, ())

    def shown(report: Report) -> list[tuple[str, str, int, int]]:
        return [(each.upper_tier, each.lower_tier, each.lower.count, sum(each.windows.values())) for each in summaries(report)]

    assert (shown(after), after.watermarks) == (shown(before), before.watermarks)
    late = events(EWR, 3, first=500)
    for tier in ("producer", "ewr.local", "aggregate"):
        ledger.counts(tier, late)
    ledger.wait(SETTLED_MS).marks("offline")
    for tier in ("ewr.local", "jfk.local"):
        ledger.marks(tier)
    found = ledger.compared()
    assert [each[:4] for each in faults(found)] == [("offline", "aggregate", "ewr-1", "loss")]
    assert [(each.lower.count, sum(each.windows.values())) for each in summaries(found)] == [
        (103, 1),
        (60, 1),
        (163, 1),
        (160, 1),
        (160, 1),
    ]
