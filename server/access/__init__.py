"""Access: who may do what on a node: keys, signed tokens, and a `Remote` that asks first (docs/design/0119)."""
