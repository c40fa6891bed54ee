"""A mount among the processes of its machine: who may mount, what others learn of it, how it is told things."""
