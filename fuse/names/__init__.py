"""The names of a home as a tree of directories."""
