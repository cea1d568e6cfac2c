"""Which parameter of one network corresponds to which of the other."""
