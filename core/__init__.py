"""The protocols of triglot and what is built on them alone.

Nothing here imports a network library or an environment library.
"""
