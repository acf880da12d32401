"""The world "postcards": a policy writes short postcards, a generator writes rubrics about them.

True quality is known here. It ranks the anchor lists and it measures held-out responses; neither
the policy, the generator nor the verifier ever reads it.

The world is direction-neutral: each prompt has as many tempting bad criteria as good ones, met
equally often by the start policy. A rubric without a sense of direction is worth nothing on
average, discriminability alone teaches as much harm as good, and only anchors tell which is which.
"""
