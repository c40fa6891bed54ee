"""Console: pages about a store, for people with a browser. They change nothing."""
