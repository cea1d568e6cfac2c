"""Compare a port with a recording of the original: `triglot diff recording.safetensors PORT`."""
