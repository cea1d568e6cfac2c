"""A neural-network library for triglot, as an installed package provides one."""

from triglot.backends.libraries import Library

LIBRARY = Library(
    name="toy",
    title="Toy NN",
    adapter="triglot_toy.adapter",
    lift="from_toy",
    module="triglot_toy.nn",
    distribution="toy-nn",
)


def library() -> Library:
    """Return the record, for an entry point that names a function."""
    return LIBRARY
