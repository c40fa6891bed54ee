"""Volumes as tables in Spark: any snapshot, read in parallel by its pages, and what changed since another.

Nothing is imported here: the parts that decode pages need no Spark, and Spark takes a second to import.
"""
