"""Is anything missing or doubled? Counts of every tier, compared by topic and ten minutes, and traced to hosts.

``moldau.audit.auditor`` counts a cluster, ``moldau.audit.tiers`` reads what all tiers published, ``moldau.audit.reconcile`` compares,
``moldau.audit.columns`` counts Arrow columns for Spark tasks. Nothing is imported before it is asked for.
"""
