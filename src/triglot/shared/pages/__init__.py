"""Pages, charts and tables, of which each command that shows some has its own contents."""
