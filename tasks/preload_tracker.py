"""What a study's shared fork host imports beside the training libraries: the tracker's client."""

from __future__ import annotations

from tasks.tracking import import_tracker

import_tracker()
