"""Tasks launch work and record what it made; what is computed lives in `dynamicrubric`."""
