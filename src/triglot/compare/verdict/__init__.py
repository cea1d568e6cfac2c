"""Judge what was trained: bits, sizes, returns, causes."""
