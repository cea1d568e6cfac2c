"""Losses, targets and update steps as functions of a batch, compared as networks are."""
