"""A home of Spark from which its Python processes import the pyspark that is installed, with its compiled modules.

Spark has them import pyspark from a zip file of its home, which has none: each process, a dozen in a job, would compile what it imports,
for half a second. The home that is made here has links to all of the other one, and in the place of the zip file a directory.

Most starts make it in a directory of their own. ``moldau spark prepare`` makes one in the *cache*, with an archive of the classes that
Spark's Java loads, which fits that home alone: its path is in the class path. Where both are there each start uses them; none writes there.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from uuid import uuid4

from moldau.lake.class_archive import archive_path, is_whole, make_archive, reading, remove_archive
from moldau.lake.java_options import OPTIONS_VARIABLE, before_given, given_options, java_options

_VARIABLE: Final = "SPARK_HOME"
_ARCHIVE_OPTION: Final = re.compile(r"-XX:(ArchiveClassesAtExit|SharedArchiveFile|AOT\w+)=")
_LIBRARIES: Final = Path("python", "lib")
_JARS: Final = "jars"
_COMPILED: Final = "__pycache__"
"""There from the first import on."""
CACHE_VARIABLE: Final = "MOLDAU_SPARK_CACHE"


@dataclass(frozen=True, slots=True)
class PreparedSpark:
    """A home in the cache, and the archive that fits it and the Java of now; neither needs to be there."""

    home: Path
    archive: Path
    """See `moldau.lake.class_archive`."""

    @property
    def is_there(self) -> bool:
        """Whether a start can use both."""
        return is_whole(self.archive) and os.path.isdir(self.home / _JARS)  # False for what may not be looked at: another user's home


def cache_directory() -> Path | None:
    """MOLDAU_SPARK_CACHE, or ``moldau/spark`` in the user's directory for caches; None where the user has none."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).absolute()
    if os.path.isabs(base := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(base, "moldau", "spark")
    home = Path(os.path.expanduser("~"))
    return home / ".cache" / "moldau" / "spark" if home.is_absolute() else None


def prepared_spark(directory: Path) -> PreparedSpark:
    """What the cache has, or would have, for the pyspark that is installed. ModuleNotFoundError."""
    installed = _installed()
    if installed is None:
        raise ModuleNotFoundError("no module pyspark", name="pyspark")
    name = _name(_links(installed))
    return PreparedSpark(directory / f"home-{name}", archive_path(directory, f"classes-{name}", installed / _JARS))


def prepare_spark(directory: Path, run: Callable[[PreparedSpark, Path], object], *, on_wait: Callable[[], object] = lambda: None) -> bool:
    """Make both in the cache, unless they are there: `run` has Spark write the archive to the path that it is given, or raises.

    Archives that do not fit the pyspark of this place any more are removed, and what was made for one that is installed no more. Whether it
    was made now. OSError, ModuleNotFoundError.
    """
    prepared, installed = prepared_spark(directory), _installed()
    assert installed is not None
    if prepared.is_there:
        return False
    directory.mkdir(parents=True, exist_ok=True)
    _made(_links(installed), directory)
    made = make_archive(prepared.archive, lambda path: run(prepared, path), on_wait=on_wait)
    for old in set(directory.glob("home-*")) - {prepared.home}:
        removed = _is_removed(old)
        if removed or _jars_of(old) == installed / _JARS:
            for archive in directory.glob(f"{old.name.replace('home', 'classes', 1)}-*.jsa"):
                remove_archive(archive)
        if removed:  # else a Spark may run that started before pyspark was upgraded
            shutil.rmtree(old, ignore_errors=True)
    return made


def _jars_of(home: Path) -> Path | None:
    """Where they are, unless we may not look."""
    try:
        return Path(os.readlink(home / _JARS))
    except OSError:
        return None


def _is_removed(home: Path) -> bool:
    """Whether its pyspark is. One that we may not look at is another user's."""
    try:
        os.stat(home / _JARS)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def linked_home(directory: str) -> Iterator[None]:
    """Spark that is started meanwhile has a home below `directory`, or the one of the cache, unless the environment names one."""
    installed = _installed()
    if os.environ.get(_VARIABLE) or installed is None:
        yield
        return
    cache = cache_directory()
    prepared = None if cache is None else prepared_spark(cache)
    if prepared is not None and prepared.is_there:
        changes = {_VARIABLE: str(prepared.home), OPTIONS_VARIABLE: _with_own(java_options(reading(prepared.archive)))}
    else:
        changes = {_VARIABLE: str(_made(_links(installed), Path(directory).absolute()))}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _with_own(options: str) -> str:
    """Those that the environment has come last, and win. With an archive of the user's own, read or written, Java may refuse ours."""
    ours = None if _ARCHIVE_OPTION.search(given_options()) else options
    return before_given(ours)


def _installed() -> Path | None:
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _links(installed: Path) -> dict[Path, Path]:
    """What a home has, and where it is."""
    links = {Path(each.name): each for each in installed.iterdir() if each.is_dir() and each.name not in (_LIBRARIES.parts[0], _COMPILED)}
    links[_LIBRARIES / "pyspark.zip" / "pyspark"] = installed
    return links | {_LIBRARIES / each.name: each for each in (installed / _LIBRARIES).glob("py4j-*.zip")}


def _name(links: dict[Path, Path]) -> str:
    return blake2b("\n".join(sorted(f"{place} {target}" for place, target in links.items())).encode(), digest_size=6).hexdigest()


def _made(links: dict[Path, Path], directory: Path) -> Path:
    """It has a name by its links: a directory may be used again when another pyspark is installed, and by two processes at a time."""
    home = directory / f"home-{_name(links)}"
    if home.exists():
        return home
    partial = directory / f".home-{uuid4().hex}"
    partial.mkdir()  # for all whom the umask lets: one user may prepare for others
    for place, target in links.items():
        (partial / place).parent.mkdir(parents=True, exist_ok=True)
        (partial / place).symlink_to(target)
    try:
        partial.rename(home)
    except OSError:  # another process has made it meanwhile
        shutil.rmtree(partial)
        if not home.exists():
            raise
    return home
