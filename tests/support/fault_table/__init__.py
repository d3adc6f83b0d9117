"""Workloads under faults, on clusters of real processes: every workload with every fault, judged by the history of all clients.

``python -m support.fault_table --help`` (with ``tests`` on the path) runs the whole table, and writes it.
"""
