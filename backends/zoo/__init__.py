"""The zoo: the architectures of `core.networks.architecture`, native, one module per library."""
