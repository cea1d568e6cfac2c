"""What several commands share: files and cores, the terminal, statistics, pages and charts."""
