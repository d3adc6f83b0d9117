"""Merged tables: one row for each key, made from the versions of an append-only table.

`merge.merge_table` brings one forward. `options` are what a merged table is made by, `planning` finds what is new, `keys` has keys as
numbers, `bucket_rows` divides new rows by bucket, and `resolution` chooses the rows that count.
"""
