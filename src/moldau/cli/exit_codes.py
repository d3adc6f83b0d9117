"""How commands end: every exit code of the command line, once. It imports nothing, since the first module of a command needs it."""

DONE = 0
FAILED = 1
WRONG_USE = 2
"""Arguments or settings that are not valid; click's own code."""
UNDECIDED = 3
"""Of an audit: nothing is known to be missing or doubled, but not all of it is known yet; of a table: it is not complete up to then;
of a replica: it does not have a commit, or has changed while it was compared."""
MISSING_OR_DOUBLED = 4
"""Of an audit: a loss or a duplication. Of a replica: rows that differ."""
DEAD_LETTERS = 5
"""Of a load: everything is loaded, and more records were put aside than are allowed."""
PARTITION_HALTED = 6
"""Of a mirror: a partition waits for an operator's decision."""
NO_PROCESS = 7
"""Of a mirror: no process of it reports. Of a stream job: its process reports nothing any more."""
NOT_TRANSLATED = 8
"""Of a mirror: some offsets of a group cannot be translated, or not yet."""
RETRYING = 9
"""Of a mirror: a partition, a topic or a process has tried the same again for longer than a minute."""
INTERRUPTED = 130
"""By SIGINT or SIGTERM, where that leaves something undone."""
