"""Tuned settings of algorithms in environments, one TOML file each, and what they reached."""
