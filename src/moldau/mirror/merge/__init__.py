"""`merge`: records of many sources in one target, each transaction with the positions that it ends at."""
