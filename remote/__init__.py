"""Remotes: a volume's other end, by URL: a node over HTTP, or one in this process.

Import from the modules, each of which loads only what it needs: `open` turns a URL into a `Remote` (async), `portal`
gives the same to blocking callers, `http` is the client, `routed` sends calls on to the node that owns a volume's
log.
"""
