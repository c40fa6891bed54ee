"""The pagestore: pages written to segments and read back from them."""
