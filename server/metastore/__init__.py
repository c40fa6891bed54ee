"""The metastore: streams, admission of commits, names and forks."""
