"""Offsets of a source, translated into those of the target, exactly: from the runs of every transaction."""
