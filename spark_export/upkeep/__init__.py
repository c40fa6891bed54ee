"""Upkeep of a whole store as a job of Spark: scrub and garbage collection, by the functions of server/upkeep."""
