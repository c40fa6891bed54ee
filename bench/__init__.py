"""Benchmarks: commands, not tests. `make bench` runs them all; each file is also one of its own."""
