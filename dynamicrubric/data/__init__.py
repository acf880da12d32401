"""Real data: anchor rows from Nectar and local files, filtered, checked, split and written down.

Rows are streamed: what is held in memory does not grow with their number. The embedded world writes
the same prompts.jsonl and anchors.jsonl (`dynamicrubric.worlds`), so a study reads either.
"""
