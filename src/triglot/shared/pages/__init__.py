"""What people look at: pages, charts, tables and statistics of comparisons, sweeps and runs."""
