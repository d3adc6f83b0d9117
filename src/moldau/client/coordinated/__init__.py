"""The consumer of the 2011 paper: members of a group share partitions out among themselves in the coordination tree, without a coordinator.

`nodes` is what they write there, as Kafka 0.8 does; `assignment` the range that each thread gets; `member` the rebalances of one member;
`offsets` where the group's offsets are; `source` reads the partitions over librdkafka and feeds message streams; `streams` is for users.
"""
