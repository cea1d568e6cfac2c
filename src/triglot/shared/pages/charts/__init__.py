"""The plots of pages and files, drawn by matplotlib."""
