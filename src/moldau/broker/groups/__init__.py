"""Consumer groups: who is a member, what each was given, and how far they have read.

Nothing here imports the broker that conducts it, and a broker without groups imports nothing of here.
"""
