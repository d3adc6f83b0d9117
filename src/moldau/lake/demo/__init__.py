"""The main job from end to end: real events, published by three hosts, loaded into a table, and the audit's word that all are there."""
