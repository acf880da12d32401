"""Embedded worlds: small, controlled settings with a known true quality."""
