"""The architectures of `triglot.core.architecture`, written natively, one module a library."""
