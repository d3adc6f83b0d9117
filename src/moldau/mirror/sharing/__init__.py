"""How the processes of a mirror share its partitions: a group on the target, whose leader assigns them by throughput."""
