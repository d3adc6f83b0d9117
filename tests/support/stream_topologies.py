"""Two jobs that feed each other: counts of events by hour and airport, and the hours that are busy."""

from collections.abc import Iterable
from pathlib import Path

from support.stream_jobs import Event, counted

SOURCE, HOURS, BUSY = "topology-in", "topology-hours", "topology-busy"
LEAST = 20

_HOURS_JOB = f"""from moldau.streams import StreamJob, windows
job = StreamJob("hours", directory="hours", cores=1, memory="512m")
schema = "at timestamp, airport string, number int"
flights = job.topic("{SOURCE}", format="json", schema=schema, time="at", records_max=60)
counts = windows.tumbling(flights, "1 hour", "airport").selectExpr("window.start AS start", "airport", "count")
job.to_topic(counts, "{HOURS}", key="airport", mode="update")
"""
_BUSY_JOB = f"""from moldau.streams import StreamJob
job = StreamJob("busy", directory="busy", cores=1, memory="512m")
hours = job.topic("{HOURS}", format="json", schema="start timestamp, airport string, count long", time="start")
job.to_topic(hours.filter("count = {LEAST}").select("start", "airport", "count"), "{BUSY}", key="airport")
"""


def write_topology(directory: Path, bootstrap: str, master: str | None = None) -> Path:
    """The files of the jobs, and that of the topology, in which the job that reads comes first; its path."""
    (directory / "hours.py").write_text(_HOURS_JOB)
    (directory / "busy.py").write_text(_BUSY_JOB)
    file = directory / "topology.toml"
    cluster = "" if master is None else f'master = "{master}"\n'
    file.write_text(
        f'name = "flights"\nbootstrap = "{bootstrap}"\n{cluster}[jobs.busy]\nfile = "busy.py"\n[jobs.hours]\nfile = "hours.py"\n'
    )
    return file


def busy_hours(sent: Iterable[Event]) -> list[tuple[str, str]]:
    """The model, of `events`, which are as many in an hour at an airport and no more: start and airport, sorted."""
    return sorted(key for key, count in counted(sent).items() if count >= LEAST)
