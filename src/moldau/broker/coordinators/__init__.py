"""The coordinators of groups and of transactions: which there are, and the internal topics that keep their state.

A broker without groups and transactions imports nothing of here.
"""
