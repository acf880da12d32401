"""The audit of the paper's bound (Eq. 45): measured generators in, one page with the answer out.

`planned` says which generators are measured on which policy's responses, `measure` does it in a
step; the rest is pure: `bound` (is there one beta?), `ranks`, `falsifier`, `findings`, and `page`.
"""
