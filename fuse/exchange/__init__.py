"""What goes to others and comes from them, and how files that are open move to it."""
