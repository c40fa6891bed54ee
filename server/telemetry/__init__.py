"""Telemetry: what a node tells of itself to whoever operates it: metrics, logs, traces."""
