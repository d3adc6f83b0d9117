"""What goes wrong with a store in SQLite that is published."""

from moldau.changelog.errors import ChangelogError


class SourceError(ChangelogError):
    """A database, or a table of it, cannot be published."""


class SchemaChangedError(SourceError):
    """The schema of a table has changed, and changes of its rows may be missing in the outbox."""
