"""Tables that loads write: one port, `format.TableFormat`, implemented by Delta tables and by plain Parquet with a manifest.

`data_files` writes their files, `committing.commit` is the only way to change a table, `opening.format_of` finds the format of a folder.
Nothing here knows what a load is: `moldau.lake.loading` stands on this room.
"""
