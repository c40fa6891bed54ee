"""Plain logs: the log by itself, with streams of bytes in place of volumes."""
