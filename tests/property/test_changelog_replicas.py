"""A replica is what its source was at a commit, whatever the log's compaction, its readers' pace and restarts do (mission I5).

Random commits over tables and shards go to a changelog whose records are compacted at random places while replicas read it in fetches of
random sizes; replicas fail, are restarted from their stores, and get tables and columns that come later. Whenever a store says that it
follows, its rows are those of the source at the commit that it says. In the end all replicas are what the source is.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from moldau.changelog.machine import Limits
from moldau.changelog.replica import Replica
from moldau.changelog.store import Phase, Position
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.values import Change, Key, Row, Table
from moldau.model.errors import WorldError
from support.simulated_changelog import CHANGELOG, SimulatedChangelog, random_changes
from support.sizes import sized

EXAMPLES = sized(60, 3000)
TABLES = [Table(name, {"id": "integer", "value": "integer"}, ("id",)) for name in ("accounts", "orders", "rates")]


class WatchedStore(DictionaryStore):
    """Fails at random, and checks what it is when it says that it follows."""

    def __init__(self, log: SimulatedChangelog) -> None:
        super().__init__()
        self.log = log
        self.failing = 0.0
        self.followed = self.loaded = 0

    def apply(self, shard: int, changes: Sequence[Change], position: Position) -> None:
        if self.log.random.random() < self.failing:
            raise OSError("the process ends here")
        super().apply(shard, changes, position)
        if position.phase is Phase.FOLLOWING:
            self.followed += 1
            self.check(shard, position.commit)
        else:
            self.loaded += 1

    def check(self, shard: int, commit: int) -> None:
        assert (shard, commit) not in self.log.incomplete, f"shard {shard} at commit {commit}, which is not complete"
        assert self.content(shard) == narrowed(self.log.states[shard][commit]), f"shard {shard} at commit {commit}"

    def content(self, shard: int) -> Mapping[str, Mapping[Key, Row]]:
        return narrowed({name: rows for (of, name), rows in self.tables.items() if of == shard and rows})


def narrowed(rows: Mapping[str, Mapping[Key, Row]]) -> Mapping[str, Mapping[Key, Row]]:
    """Without columns that are null: a row that was written before a column came has none."""
    return {
        table: {key: {name: value for name, value in row.items() if value is not None} for key, row in these.items()}
        for table, these in rows.items()
    }


def opened(log: SimulatedChangelog, store: WatchedStore, random: Random) -> Replica:
    memory = random.choice([1, 5, 100])
    limits = Limits(memory_changes_max=memory, apply_changes_max=random.choice([1, 7, 50]), commit_records_max=random.choice([1, 3, 100]))
    return Replica("nowhere:1", CHANGELOG, store, limits=limits, log_of=log, clock_ms=lambda: log.now_ms)


def step(replica: Replica) -> None:
    with suppress(WorldError, OSError):  # it opens its shards again from what the store has
        replica.step()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32))
def test_a_replica_is_always_what_the_source_was_at_a_commit(seed: int) -> None:
    random = Random(seed)
    log = SimulatedChangelog(random.randint(1, 3), random)
    tables = TABLES[: random.randint(1, 2)]
    for table in tables:
        log.define(table)
    stores = [WatchedStore(log) for _ in range(2)]
    replicas = [opened(log, store, random) for store in stores]
    incomplete = random.choice([0.0, 0.3])
    compacting, keys = random.choice([0.0, 0.05, 0.3]), random.choice([3, 30])
    log.failing = random.choice([0.0, 0.05])
    log.records_max = random.choice([1, 5, 50])
    for store in stores:
        store.failing = random.choice([0.0, 0.05])
    for _ in range(random.randint(10, 120)):
        log.now_ms += 1
        action = random.random()
        if action < 0.4:
            shard = random.randrange(log.shards())
            count = random.choice([0, 1, 2, 5, 40])
            changes = random_changes(random, tables, keys, log.states[shard][-1], count)
            log.publish(shard, changes, seen=random.random() < 0.7, complete=random.random() >= incomplete)
        elif action < 0.85:
            step(random.choice(replicas))
        elif action < 0.87:
            which = random.randrange(len(replicas))
            replicas[which].close()
            replicas[which] = opened(log, stores[which], random)
        elif action < 0.95:
            log.show(all_of_them=False)
        elif action < 0.96 and len(tables) < len(TABLES):
            tables = TABLES[: len(tables) + 1]
            log.define(tables[-1])
        elif action < 0.97:
            wider = tables[0]._replace(columns={**tables[0].columns, f"added{len(tables[0].columns)}": "integer"})
            tables = [wider, *tables[1:]]
            log.define(wider)
        if random.random() < compacting:
            log.compact(share=random.choice([0.3, 1.0]))
    for shard in log.states:
        log.publish(shard, [])
    log.show()
    log.failing = 0.0
    for replica, store in zip(replicas, stores, strict=True):
        store.failing = 0.0
        for shard, states in log.states.items():
            for _ in range(3000):
                position = replica.position(shard)
                if position is not None and position.phase is Phase.FOLLOWING and position.commit == len(states) - 1:
                    break
                step(replica)
            else:
                raise AssertionError(f"seed {seed}: shard {shard} is at {replica.position(shard)} of {len(states) - 1}")
            store.check(shard, len(states) - 1)
        replica.close()
