"""What the terminal shows: streams, wrapping, progress, curves drawn with characters."""
