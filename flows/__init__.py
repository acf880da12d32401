"""Flows: they wire tasks together and compute nothing themselves."""
