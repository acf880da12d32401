"""One of the processes of a step that runs in several: `accelerate launch -m tasks.rank JOB`.

JOB is a file that `tasks.ranks` writes. The process leaves its outcome beside it, in a file of its
own, and exits with 1 if that is a failure, on which the launcher ends the others.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tasks.forkjob import find_function, outcome_of
from tasks.process import die_with_parent


def main(path: Path) -> int:
    """Run the job's function together with the other processes; return the exit code."""
    # The launcher starts each process in a session of its own, where nobody would look for it.
    die_with_parent(os.getppid())
    rank = int(os.environ["RANK"])
    faulthandler.enable(sys.stderr)
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"%(asctime)s %(levelname)s process {rank}: %(name)s: %(message)s",
    )
    job = json.loads(path.read_text(encoding="utf-8"))
    outcome: dict[str, Any] = {"result": "ok"}
    try:
        run(job, path.parent / "store")
    except BaseException as error:  # the boundary: everything becomes a message and a log entry
        traceback.print_exc()
        outcome = outcome_of(error, f"running process {rank} of {job['target']}")
    written = path.with_name(f"outcome-{rank}.new")
    written.write_text(json.dumps(outcome), encoding="utf-8")
    written.replace(path.with_name(f"outcome-{rank}.json"))
    return 0 if outcome["result"] == "ok" else 1


def run(job: dict[str, Any], store: Path) -> None:
    """Join the others, run the function, take leave."""
    from dynamicrubric.training import processes

    processes.join(store)
    find_function(job["target"])(**job["kwargs"])
    processes.leave()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
