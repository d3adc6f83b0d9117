"""The coordinators of groups and of transactions: their internal topics, and the runtime that loads, serves and resigns their partitions.

A broker without groups and transactions imports nothing of here.
"""
