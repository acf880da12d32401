"""Benchmarks of evaluators: data sets in one schema, figures with intervals, tables. No torch."""
