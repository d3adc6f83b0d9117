"""Replicas of partitions that this broker hosts: role, in-sync set, high watermark, and the appends that wait for them."""
