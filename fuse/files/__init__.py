"""One volume as one file: what programs see, when what they write is committed, SQLite's journals and logs."""
