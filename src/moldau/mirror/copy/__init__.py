"""`copy`: the log of each partition of the source, with its offsets and leader epochs, in a topic that takes nothing else."""
