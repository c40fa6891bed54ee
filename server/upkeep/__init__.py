"""Upkeep: what keeps a store small and whole, beside its commits."""
