"""Tables that loads write: one port, `format.TableFormat`, behind it Delta tables and plain Parquet with a manifest.

`committing.commit` is the only way to change a table; `opening.table_format` says which format a folder has.
"""
