"""What determines a step's content, as canonical JSON, its hash, and what differs between two."""

from __future__ import annotations

from dynamicrubric.hashing import JSON, canonical_json, changed_fields, hash_of

__all__ = ["JSON", "canonical_json", "changed_fields", "hash_of"]
