"""Engines: what generates text and what judges it. `base` has the interfaces and no torch."""
