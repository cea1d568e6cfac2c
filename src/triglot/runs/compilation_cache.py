"""JAX's persistent compilation cache."""

from .registry.options import MachineOptions


def configure(options: MachineOptions) -> None:
    """Enable the cache, in the chosen folder or the user's cache directory, or disable it."""
    import jax
    import platformdirs

    folder = options.compilation_cache or platformdirs.user_cache_path("triglot", appauthor=False)
    if options.compilation_cache is None:
        folder = folder / "jax"
    jax.config.update("jax_enable_compilation_cache", not options.no_compilation_cache)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
