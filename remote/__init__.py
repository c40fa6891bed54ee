"""A volume's remote, found by URL."""
