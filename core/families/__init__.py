"""What the algorithms of one family share: at most one class between an algorithm and the base."""
