"""Searches that propose settings from the results of earlier ones, round by round, by Optuna."""
