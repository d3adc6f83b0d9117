"""Tracked events: a common header, producers that count what they send, consumers that decode (missions F1, F2, F3, H1).

``from moldau.tracking import TrackerProducer, TrackedConsumer``. Nothing is imported before it is asked for.
"""
