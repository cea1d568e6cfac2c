"""One module per family of architectures: both networks of a pair stand side by side."""
