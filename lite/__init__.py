"""SQLite over a remote, with nothing kept on disk."""
