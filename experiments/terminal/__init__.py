"""What the terminal shows: streams, wrapping, progress, the help of all commands."""
