"""What happens to a cluster, by name: each function does it once, undoes it, and returns how many faults that were."""

from collections.abc import Callable, Mapping

from moldau.testing.cluster.places import TREE
from support.fault_table.process_faults import DATA, METADATA
from support.fault_table.stage import FILE, STORES, ZOOKEEPER, Stage

Hold = Callable[[float], object]
"""Waits so many seconds, less if the run is to end."""
Fault = Callable[[Stage, Hold], int]

DOWN_S = (0.0, 0.0, 0.5, 2.0)
PAUSED_S = (0.1, 1.0, 3.0, 8.0)
CUT_S = (0.5, 2.0, 5.0)
"""Shorter and longer than sessions last, and than suspicion takes."""
SLOW_S = (1.0, 3.0)
FULL_S = (0.2, 1.0, 3.0)
STEPS_S = (-600, -5, 5, 600)
STORM_KILLS = 5


def baseline(stage: Stage, hold: Hold) -> int:
    """Nothing."""
    hold(1.0)
    return 0


def kill(stage: Stage, hold: Hold, *broker_ids: int) -> int:
    stage.cluster.kill(*broker_ids)
    hold(stage.chance.choice(DOWN_S))
    stage.restart(*broker_ids)
    return len(broker_ids)


def pause(stage: Stage, hold: Hold, *broker_ids: int) -> int:
    stage.cluster.pause(*broker_ids)
    hold(stage.chance.choice(PAUSED_S))
    stage.cluster.resume(*broker_ids)
    return len(broker_ids)


def isolate(stage: Stage, hold: Hold, broker_id: int) -> int:
    stage.cluster.isolate(broker_id)
    hold(stage.chance.choice(CUT_S))
    stage.cluster.heal()
    return 1


def isolate_all(stage: Stage, hold: Hold) -> int:
    for each in stage.cluster.broker_ids:
        stage.cluster.partition(each, stage.others(each))
    hold(stage.chance.choice(CUT_S))
    stage.cluster.heal()
    return 1


def cut_one_way(stage: Stage, hold: Hold) -> int:
    """A leader from one of the others, or it from the leader."""
    pair = [stage.leader()]
    pair.append(stage.chance.choice(stage.others(pair[0])))
    stage.chance.shuffle(pair)
    stage.cluster.partition(*pair, one_way=True)
    hold(stage.chance.choice(CUT_S))
    stage.cluster.heal()
    return 1


def cut_from_tree(stage: Stage, hold: Hold) -> int:
    """A leader that reaches all the others, and its clients."""
    stage.cluster.partition(stage.leader(), TREE)
    hold(stage.chance.choice(CUT_S))
    stage.cluster.heal()
    return 1


def move_leader(stage: Stage, hold: Hold) -> int:
    partition = stage.partition()
    to = stage.chance.choice([each for each in stage.cluster.broker_ids if each != stage.cluster.leader_of(stage.topic, partition)])
    stage.cluster.move_leader(stage.topic, partition, to)
    hold(0.2)
    return 1


def reconfigure(stage: Stage, hold: Hold, *, kills: bool = False) -> int:
    """Three replicas, one, three. `kills`: the broker that leads meanwhile dies when the others are to get their replicas back."""
    partition = stage.partition()
    every = stage.chance.sample(stage.cluster.broker_ids, 3)
    stage.reassign(partition, every[:1])
    hold(0.3)
    stage.reassign(partition, every, wait=False)
    if kills:
        stage.cluster.kill(every[1])
        stage.restart(every[1])
    stage.reassign(partition, every)
    return 3 if kills else 2


def rolling_restart(stage: Stage, hold: Hold) -> int:
    for each in stage.cluster.broker_ids:
        stage.restart(each)
        stage.cluster.wait_until_in_sync()
        hold(0.2)
    return len(stage.cluster.broker_ids)


def storm(stage: Stage, hold: Hold) -> int:
    """Brokers are killed one after the other, each before the last one has caught up."""
    for _ in range(STORM_KILLS):
        kill(stage, lambda _seconds: None, stage.chance.choice(stage.cluster.broker_ids))
    return STORM_KILLS


def slow_links(stage: Stage, hold: Hold) -> int:
    slow = stage.chance.choice(stage.cluster.broker_ids)
    stage.cluster.slow(slow, stage.others(slow), delay_s=stage.chance.choice((0.05, 0.1, 0.5)), bytes_per_s=400_000)
    hold(stage.chance.choice(SLOW_S))
    stage.cluster.heal()
    return 1


def no_space(stage: Stage, hold: Hold, what: int) -> int:
    """For one broker's data, or for what it writes to the metadata that all share. It may end by that, and is started again."""
    full = stage.leader()
    stage.believe(full, no_space=what)
    hold(stage.chance.choice(FULL_S))
    stage.believe(full)
    if full not in stage.up():
        stage.restart(full)
    return 1


def clock_step(stage: Stage, hold: Hold) -> int:
    """One broker's clock is wrong for a while: two steps."""
    wrong = stage.chance.choice(stage.cluster.broker_ids)
    stage.believe(wrong, clock_step_s=stage.chance.choice(STEPS_S))
    hold(2.0)
    stage.believe(wrong)
    return 2


def tree_killed(stage: Stage, hold: Hold) -> int:
    stage.zookeeper.kill()
    hold(stage.chance.choice(DOWN_S))
    stage.start_zookeeper()
    return 1


def tree_paused(stage: Stage, hold: Hold) -> int:
    stage.zookeeper.suspend()
    hold(stage.chance.choice(PAUSED_S))
    stage.zookeeper.resume()
    return 1


FAULTS: Mapping[str, Fault] = {
    "baseline": baseline,
    "kill_leader": lambda stage, hold: kill(stage, hold, stage.leader()),
    "kill_follower": lambda stage, hold: kill(stage, hold, stage.follower()),
    "kill_coordinator": lambda stage, hold: kill(stage, hold, stage.coordinator()),
    "kill_controller": lambda stage, hold: kill(stage, hold, stage.cluster.controller()),
    "kill_all": lambda stage, hold: kill(stage, hold, *stage.cluster.broker_ids),
    "pause_leader": lambda stage, hold: pause(stage, hold, stage.leader()),
    "pause_follower": lambda stage, hold: pause(stage, hold, stage.follower()),
    "pause_coordinator": lambda stage, hold: pause(stage, hold, stage.coordinator()),
    "pause_all": lambda stage, hold: pause(stage, hold, *stage.cluster.broker_ids),
    "isolate_leader": lambda stage, hold: isolate(stage, hold, stage.leader()),
    "isolate_follower": lambda stage, hold: isolate(stage, hold, stage.follower()),
    "isolate_coordinator": lambda stage, hold: isolate(stage, hold, stage.coordinator()),
    "isolate_all": isolate_all,
    "cut_one_way": cut_one_way,
    "move_leader": move_leader,
    "reconfigure_313": reconfigure,
    "reconfigure_kill": lambda stage, hold: reconfigure(stage, hold, kills=True),
    "rolling_restart": rolling_restart,
    "storm": storm,
    "slow_links": slow_links,
    "disk_full": lambda stage, hold: no_space(stage, hold, DATA),
    "clock_step": clock_step,
    "metadata_disk_full": lambda stage, hold: no_space(stage, hold, METADATA),
    "cut_from_zookeeper": cut_from_tree,
    "zookeeper_killed": tree_killed,
    "zookeeper_paused": tree_paused,
}
ONLY_WITH: Mapping[str, str] = {
    "metadata_disk_full": FILE,
    "cut_from_zookeeper": ZOOKEEPER,
    "zookeeper_killed": ZOOKEEPER,
    "zookeeper_paused": ZOOKEEPER,
}
"""In which store the others can happen is not limited."""


def faults_of(store: str) -> list[str]:
    """Those that can happen to a cluster with metadata there."""
    assert store in STORES
    return [name for name in FAULTS if ONLY_WITH.get(name, store) == store]
