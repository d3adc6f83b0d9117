"""What is wrong with a table or grows, what it costs, and its repair.

`examination.examine` looks at a table and returns facts; `rules.findings` decides from facts alone what is wrong; `repairing.repair` acts
on findings. Nothing here needs Spark or a broker. A repair is safe beside a running load: a compaction is commits as all others are, a
checkpoint changes no version, and what is deleted is older than a retention that no load and no reader reaches back to.
"""
