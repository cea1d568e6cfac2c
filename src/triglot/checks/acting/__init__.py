"""The check that acting equals learning."""
