"""Is discriminability honest? What R_disc pays for that tells no better response from a worse one.

Pure figures of rubrics and verdicts (`single`, `naive`, `redundant`), the same of a finished cell's
stored tables (`cells`), and of the order in which a generator is shown a set (`orders`). No torch.
"""
