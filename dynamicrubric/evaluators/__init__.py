"""Evaluators: response sets in; rubrics, verdicts and scores out. No torch."""
