"""Upkeep: folds, which keep a store small, and the scrub, which verifies all of it from the bytes."""
