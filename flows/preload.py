"""What a study's shared fork host imports beside the libraries of its steps: Prefect, our flows.

The server's address is not known yet; a fork reads Prefect's settings anew (`flows.forked`).
"""

from __future__ import annotations

import flows.__main__
import flows.audit
import flows.grid
import flows.nesting
import flows.prepare
import flows.probe
import flows.round  # noqa: F401 - loaded for the forked children
