"""Keys with a record that did not fit (`state.py`), so that what they concern is refused and not answered from an older record.

    of a version, or of a deletion of versions  ->  its subject lacks schemas
    of a configuration or a mode                ->  its scope lacks that setting

How much is kept of this has a bound too. Beyond it every subject lacks schemas, or every scope its settings.
"""

import sys

from moldau.registry.records import ClearSubjectKey, ConfigKey, DeleteSubjectKey, Key, ModeKey, SchemaKey
from moldau.registry.subjects import DEFAULT_CONTEXT, parse_subject

KEYS_BYTES_MAX = 1 << 20
"""Memory of the keys, about."""
_EACH_BYTES = 1_000


class OmittedKeys:
    """The keys whose last record was left out. It is as safe for threads as what calls it."""

    def __init__(self, bytes_max: int = KEYS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._versions: dict[str, set[Key]] = {}
        self._namesakes: dict[str, set[str]] = {}
        """Those subjects that are outside of the default context, by their name."""
        self._settings: set[Key] = set()
        self._every_subject = False
        self._every_scope = False

    def add(self, key: Key | None) -> None:
        """A record was left out; None if not even its key was read."""
        match key:
            case SchemaKey() | DeleteSubjectKey():
                if key not in self._versions.get(key.subject, ()):
                    self._every_subject |= not self._fits(key)
                    if not self._every_subject:
                        self._versions.setdefault(key.subject, set()).add(key)
                        where = parse_subject(key.subject)
                        if where.context != DEFAULT_CONTEXT:
                            self._namesakes.setdefault(where.name, set()).add(key.subject)
            case ConfigKey() | ModeKey():
                if key not in self._settings:
                    self._every_scope |= not self._fits(key)
                    if not self._every_scope:
                        self._settings.add(key)
            case ClearSubjectKey():
                self._every_subject = True
            case None:
                self._every_subject = self._every_scope = True
            case _:
                pass

    def discard(self, key: Key) -> None:
        """A later record of the key was kept, or was a tombstone."""
        if isinstance(key, SchemaKey) and key in self._versions.get(key.subject, ()):
            self._versions[key.subject].discard(key)
            if not self._versions[key.subject]:
                del self._versions[key.subject]
                self._namesakes.get(parse_subject(key.subject).name, set()).discard(key.subject)
            self._bytes -= _size(key)
        elif isinstance(key, ConfigKey | ModeKey) and key in self._settings:
            self._settings.discard(key)
            self._bytes -= _size(key)

    def schemas_of(self, subject: str | None = None) -> bool:
        """Whether a subject lacks schemas, or any one does."""
        return self._every_subject or (bool(self._versions) if subject is None else subject in self._versions)

    def setting(self, key: ConfigKey | ModeKey) -> bool:
        """Whether this setting is lacking."""
        return self._every_scope or key in self._settings

    def namesakes(self, name: str) -> set[str]:
        """Subjects of this name outside of the default context that lack schemas."""
        return self._namesakes.get(name, set())

    def _fits(self, key: ConfigKey | ModeKey | SchemaKey | DeleteSubjectKey) -> bool:
        if self._bytes + _size(key) > self._bytes_max:
            return False
        self._bytes += _size(key)
        return True


def _size(key: ConfigKey | ModeKey | SchemaKey | DeleteSubjectKey) -> int:
    return _EACH_BYTES + 2 * sys.getsizeof(key.subject)
