"""Evaluations during a training, its best checkpoint, early stop, `triglot runs` and `watch`."""
