"""The page's template, style and script."""
