"""The server: the store, the log over it, and a node that wires them."""
