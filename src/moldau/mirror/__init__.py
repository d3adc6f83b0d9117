"""Mirrors between clusters: the topics of one cluster, kept in another.

``moldau.mirror.plan`` reads a mirror's file. What follows from it alone is decided without I/O: ``selection`` says which topics are
mirrored, ``naming`` what they are called in the target, ``loops`` whether several mirrors fit together.
"""
