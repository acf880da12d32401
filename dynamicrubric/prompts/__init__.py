"""Frames: how prompts become token ids, with the content and the frame kept apart."""
