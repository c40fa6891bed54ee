"""The ground floor: words, formats and protocols. Imports nothing of ours and does no I/O."""
