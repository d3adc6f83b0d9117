"""An entry of ``.txnindex``: a transaction that was aborted, for readers who want committed records only. Do not change."""

from struct import Struct

ABORTED = Struct(">hqqqq")
"""Version, producer id, first and last offset of the transaction, last stable offset when it ended."""
ABORTED_VERSION = 0
