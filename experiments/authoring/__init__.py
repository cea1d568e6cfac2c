"""Custom components: write a template, check it, list what is installed."""
