"""Stores with latency and faults, clocks and workloads, for tests; yours too."""
