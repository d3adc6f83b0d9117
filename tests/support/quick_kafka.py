"""The archives with which programs over Kafka's libraries start soon in tests, made once by `make test`: ``python -m support.quick_kafka``.

Without them they start later, and nothing fails.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from moldau.lake.class_archive import make_archive, writing
from support.java import libraries_archive
from support.kafka import KafkaProcess
from support.maven import kafka_libraries

VERSIONS = ("4.3.0", "3.9.1")
_SOURCE = Path(__file__).parents[1] / "conformance" / "java" / "Exercise.java"


def _run(version: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        kafka = KafkaProcess(version, Path(directory))
        config = kafka.format()
        done = kafka.java(*writing(archive), str(_SOURCE), str(config), kafka.bootstrap)
        if done.wait() != 0:
            print(
                f"no archive of the classes of Kafka {version}, without which its programs start later: {kafka.output[-3000:]}",
                file=sys.stderr,
            )


def main() -> None:
    """Make what is missing, where there is Maven."""
    if shutil.which("mvn") and shutil.which("java"):
        for version in VERSIONS:
            make_archive(libraries_archive(kafka_libraries(version)), lambda archive, version=version: _run(version, archive))  # type: ignore[misc]


if __name__ == "__main__":
    main()
