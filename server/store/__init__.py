"""The object store (DESIGN §3): the protocol, its backends, and what makes them safe to use.

Import from the modules: `protocol` has the four operations, `open` turns a URL into a store, `root` is a store's
first object, `settle` tells what became of a lost `create`, `hedge` sends slow requests twice, `probe` refuses a
store that breaks the rules, `two_phase_store` makes a store of one that has no create-if-absent.
"""
