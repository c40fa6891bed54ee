"""SQLite's file format as bytes: header, B-tree pages, records, chains, free list, pointer maps, WAL. Pure; every
parser of pages is here."""
