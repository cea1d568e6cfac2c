"""Public architectures in two libraries each, with planted bugs: does `triglot diff` find them?"""
