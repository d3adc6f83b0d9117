"""Archives of the classes that Java programs of the tests load, with which each of them starts in half the time (class data sharing).

An archive is made once, by a run that exercises the program, and fits one Java and one class path: both are in its name. A Java that cannot
use the one it is given starts without it, in silence.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For programs that end within a minute: the best compiler, and a collector with threads of its own, cost more than they bring."""
_SILENT = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_path(directory: Path, name: str, jars: Path) -> Path:
    """Where the archive of these jars is, or would be: another one where the Java or a jar is another one."""
    home = os.environ.get("JAVA_HOME")
    java = Path(os.path.realpath(shutil.which("java", path=os.path.join(home, "bin") if home else None) or "java"))
    digest = hashlib.sha256()
    for each in (java, *sorted(jars.glob("*.jar"))):
        with contextlib.suppress(OSError):
            found = each.stat()
            digest.update(f"{each} {found[stat.ST_SIZE]} {found[stat.ST_MTIME]}\n".encode())
    return directory / f"{name}-{digest.hexdigest()[:16]}.jsa"


def reading(archive: Path) -> tuple[str, ...]:
    """Options for a Java to read an archive, if there is one."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.exists() else ()


def writing(archive: Path) -> tuple[str, ...]:
    """Options for a Java to write one when it ends in order."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


def make_archive(archive: Path, run: Callable[[Path], object]) -> None:
    """Have `run` write the archive to the path that it is given, unless it is there; without those of the same name that do not fit now.

    One process at a time makes archives of a directory. If `run` writes nothing there is none in the end.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        run(partial)
        name, _, _ = archive.stem.rpartition("-")
        for old in archive.parent.glob(f"{name}-{'?' * 16}.jsa"):
            old.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            partial.rename(archive)
