"""A neural-network library for triglot, as an installed package provides one."""

from triglot.backends.libraries import Library

LIBRARY = Library(
    name="toy",
    title="Toy NN",
    folder="triglot_toy",
    lift="from_toy",
    module="toy_nn",
    distribution="toy-nn",
    format="toy",
)


def library() -> Library:
    """Return the record, for an entry point that names a function."""
    return LIBRARY
