"""Compaction: of each key only the newest record is kept.

The way of a pass over one log, and where each step happens:

1. :mod:`~moldau.log.cleaning.planning` (broker): which log is the dirtiest, and which of its offsets may be cleaned.
2. :mod:`~moldau.log.cleaning.work` (worker process): builds a map of the keys in the dirty part, then copies every segment without the
   records that a newer one replaces, a group of segments into one, as ``.cleaned`` files.
3. :mod:`~moldau.log.cleaning.cleaner` (broker): swaps each group in as soon as it is written, and notes how far the log is clean.

Rules that hold: offsets never change. The active segment, and what lies after the last stable offset, is not touched. A worker only reads
sealed segments and writes files of its own; it knows nothing of the broker's state but what its task says. Nothing here is imported by a
broker that has nothing to compact.
"""
