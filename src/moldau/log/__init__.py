"""The log of one partition and the directories that hold logs: segments, indexes, recovery, retention, producer state.

Files are Apache Kafka's, byte for byte (``docs/formats``). Every access goes through the ``FileSystem`` port, and each module
says of the bytes it handles whether they are in memory, in the page cache, or on disk.
"""
