"""The pagestore: segments are written whole and read frame by frame, through a cache (DESIGN §2, S2.19-S2.22).

It knows objects, frames and ranges, and nothing of LSNs: which location holds which page at a snapshot is the
metastore's answer (read.Source).
"""
