"""What all libraries' lists of layers are made of: kinds, rules of layouts, and formulas."""
