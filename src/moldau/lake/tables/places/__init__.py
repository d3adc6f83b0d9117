"""Where tables lie: one port, `place.Place`, over a directory of this machine or a prefix of a bucket; `addresses.place_of` finds which.

Names of files are relative to the table, with ``/`` between their parts. A name is taken once and for all: data files have new names, and
a version is put only if its name is free.
"""
