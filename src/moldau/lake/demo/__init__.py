"""The main job from end to end: a file of events, through a broker of our own, into a lake table, and the proof that all are there."""
