"""What a profile needs, and what of it this machine has; no weights are loaded.

`checks` runs everything; `lengths`, `memory`, `work` and `storage` compute, `batches` and `roles`
compare, `machine` and `reach` look around, `view` prints.
"""
