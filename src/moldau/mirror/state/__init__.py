"""`_mirror_state` of the target: what operators have ordered, and what the processes report of their partitions."""
