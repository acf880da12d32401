"""Attempts to hack an evaluator: attacks on response sets, and what they gain beside true quality.

First order, a policy's outputs made to please a verifier; second order, responses made so that the
generator writes items that they meet. `attacks` has them, `measure` runs an evaluator on attacked
sets, `course` compares what an evaluator says of a policy's course with what is true of it,
`figures` sums both up, `planned` says which cells of a plan are probed. No torch.
"""
