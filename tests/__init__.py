"""Tests; a package, since an installed library (pgx) ships a package `tests` too."""
