"""What a store needs while it grows old: the scrub, which verifies all of it from the bytes."""
