"""Changes: what became of a table's rows between two snapshots, from the pages that differ."""
