"""SQLite's file format as bytes: header, B-tree pages, records, chains, WAL. Pure; every parser of pages is here."""
