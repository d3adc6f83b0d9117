"""Transactions: which producer owns a transactional id, what is in its transaction, and how that ends (KIP-98, KIP-360, KIP-890).

Nothing here imports the broker that conducts it, and a broker without transactions imports nothing of here. How a transaction goes, with
the table of states, requests and outcomes: ``docs/transactions.md``.
"""
