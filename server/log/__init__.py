"""The log: one chain of entries that carries many volumes' records."""
