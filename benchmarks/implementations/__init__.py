"""Losses and updates of published implementations beside triglot's."""
