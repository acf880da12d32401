"""The world "language": real prompts and ranked answers, pretrained models, no known true quality.

What good means is in the anchor lists alone. Training reads the lists of training prompts; the
lists of held-out prompts measure the evaluator, and nobody knows the true quality of a policy's
responses: figures of it are unscored here, never a number.
"""
