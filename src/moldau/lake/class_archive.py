"""Archives of the classes that a Java program loads, with which it starts in half the processor time (Java's class data sharing).

An archive is written by a Java that ends in order, of the classes that it has loaded, and fits one Java and one class path: both are in its
name. A Java that cannot use the one that it is given starts without it, in silence. One made with one collector or size of the heap serves
others too, up to 32 GB: above that Java has another form of references.

A damaged archive is not used either: Java compares checksums (in 0.1 s), and we the size, which is in a file beside it: Java 17 crashes
with an archive that ends too early.
"""

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_SILENT: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_OF_JAVA: Final = (Path("lib", "server", "libjvm.so"), Path("lib", "server", "classes.jsa"))
"""Beside ``bin/java``, which may stay the same when these are replaced."""
_VERIFIED: Final = "-XX:+VerifySharedSpaces"
_DIGITS: Final = 16
_LOCK: Final = "lock"


def java_program() -> Path:
    """The Java that Spark starts: of JAVA_HOME, else of the PATH. By the same name: it may be a link to a program that goes by it."""
    home = os.environ.get("JAVA_HOME")
    return Path(shutil.which("java", path=os.path.join(home, "bin") if home else None) or "java")


def archive_path(directory: Path, name: str, jars: Path) -> Path:
    """Where the archive of these jars is, or would be: another one where the Java or a jar is another one, or where the directory lists
    them in another order, which is that of Java's class path.
    """
    java = Path(os.path.realpath(java_program()))
    digest = hashlib.sha256()
    names = [each for each in (os.listdir(jars) if os.path.isdir(jars) else ()) if each.endswith(".jar")]
    for each in (java, *(java.parents[1] / part for part in _OF_JAVA if len(java.parents) > 1), *(jars / name for name in names)):
        with suppress(OSError):
            found = each.stat()
            digest.update(f"{each} {found[stat.ST_SIZE]} {found[stat.ST_MTIME]}\n".encode())
    return directory / f"{name}-{digest.hexdigest()[:_DIGITS]}.jsa"


def is_whole(archive: Path) -> bool:
    """Whether there is one, of the size that it was made with."""
    try:
        return os.access(archive, os.R_OK) and archive.stat().st_size == int(_size_file(archive).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False


def reading(archive: Path) -> tuple[str, ...]:
    """Options for a Java to read an archive, if there is one."""
    return (f"-XX:SharedArchiveFile={archive}", _VERIFIED, *_SILENT) if is_whole(archive) else ()


def writing(archive: Path) -> tuple[str, ...]:
    """Options for a Java to write one when it ends in order."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


def make_archive(archive: Path, run: Callable[[Path], object], *, on_wait: Callable[[], object] = lambda: None) -> bool:
    """Have `run` write the archive to the path that it is given, unless it is there; without those of the same name that do not fit now.

    One process at a time makes archives of a directory; `on_wait` is called before another one is waited for. If `run` writes nothing there
    is none in the end; if it raises, all stays as it was. Whether one was made now. OSError.
    """
    if is_whole(archive):
        return False
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(archive):
            return False
        for left in archive.parent.glob("*.partial"):
            left.unlink(missing_ok=True)
        partial = archive.with_name(f"{archive.stem}-{os.getpid()}.partial")
        try:
            run(partial)
            name, _, _ = archive.stem.rpartition("-")
            for old in archive.parent.glob(f"{name}-{'?' * _DIGITS}.jsa"):
                remove_archive(old)
            if not partial.exists():
                return False
            _sync(partial)
            _size_file(archive).write_text(str(partial.stat().st_size), encoding="ascii")
            partial.rename(archive)
        finally:
            partial.unlink(missing_ok=True)
        return True


def remove_archive(archive: Path) -> None:
    """With the file of its size. A Java that uses it keeps it until it ends."""
    archive.unlink(missing_ok=True)
    _size_file(archive).unlink(missing_ok=True)


def _size_file(archive: Path) -> Path:
    return archive.with_suffix(".size")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
