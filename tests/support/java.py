"""Java programs over libraries from Maven: they end soon, and start soon where there is an archive of the libraries' classes."""

import subprocess
from pathlib import Path

from moldau.lake.class_archive import archive_path, reading

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For programs that end within a minute: the best compiler, and a collector with threads of its own, cost more than they bring."""


def libraries_archive(libraries: Path) -> Path:
    """Where the archive of a directory of jars is, or would be: beside it."""
    return archive_path(libraries.parent, libraries.name, libraries)


def java_command(libraries: Path, *words: str, classes: Path | None = None, memory: str = "256m") -> list[str]:
    """Options of Java's, then a main class or the file of its source, then its arguments. `classes` are compiled ones.

    They come last in the class path: an archive fits where it begins with the jars.
    """
    class_path = f"{libraries}/*" if classes is None else f"{libraries}/*:{classes}"
    return ["java", f"-Xmx{memory}", *QUICK, *reading(libraries_archive(libraries)), "-cp", class_path, *words]


def compile_java(libraries: Path, classes: Path, *sources: Path) -> Path:
    """Compile sources into a directory, which is returned."""
    quick = [f"-J{each}" for each in QUICK]
    subprocess.run(["javac", *quick, "-cp", f"{libraries}/*", "-d", str(classes), *map(str, sources)], check=True)
    return classes
