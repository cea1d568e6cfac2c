"""What the built-in networks of all libraries share, in native arithmetic."""
