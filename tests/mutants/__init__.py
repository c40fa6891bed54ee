"""Mutants: bugs that would break a promise, planted one at a time, each to be caught by a test (`make mutants`)."""
