"""Evaluations during a training, its best checkpoint, early stop, videos, `triglot watch`."""
