"""The network face of a node."""
