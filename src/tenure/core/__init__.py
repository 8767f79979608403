"""The pure core: what a key's record is, what may happen to it, and what follows. No I/O, no clock, no randomness."""
