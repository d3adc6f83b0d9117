"""Tables that loads write: one port, `format.TableFormat`, behind it Delta tables and plain Parquet with a manifest.

`data_files` writes their files, `committing.commit` is the only way to change a table, `format.format_of` says which format a folder has.
Nothing here knows what a load is: `moldau.lake.loading` stands on this room.
"""
