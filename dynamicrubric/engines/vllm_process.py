"""The parent's end of a vLLM child: starting, asking, progress, deadlines, crashes, the end.

vLLM lives in an environment of its own, so the child is started by the path of that environment's
interpreter. It ends with this process, however this one ends; `vllm_child` has the protocol.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

from pydantic import Field

from dynamicrubric.engines import vllm_child
from dynamicrubric.errors import InstrumentError, UserError
from dynamicrubric.settings import Section

logger = logging.getLogger(__name__)

_LOG_LINES: Final = 12
_TAIL_BYTES: Final = 16_384
_POLL_SECONDS: Final = 1.0
_TELL_SECONDS: Final = 10.0
_END_SECONDS: Final = 10.0
_LORA_ROOM: Final = (8, 16, 32, 64, 128, 256, 320, 512)
# Of the parent's Python, which is another one; and of servers that it may know of.
_NOT_INHERITED: Final = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    # Of a training that several processes share: each of them has a child of its own.
    | {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    | {"MASTER_ADDR", "MASTER_PORT"}
)
_QUIET: Final[Mapping[str, str]] = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",  # checkpoints are folders
    "VLLM_HOST_IP": "127.0.0.1",  # what its processes talk through stays on this machine
    "VLLM_LOOPBACK_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
}


class VllmPlace(Section):
    """Where vLLM lives and how it runs: nothing that changes a figure beyond rounding."""

    python: str = ".venv-vllm/bin/python"
    """Interpreter of vLLM's environment, as `make vllm` builds it."""
    kv_cache_gib: Annotated[float, Field(gt=0.0)] = 2.0
    """Memory for the cache that prompts with a common beginning share."""
    eager: bool = True
    """No graph capture and no compilation: starts sooner, needs no C++ compiler, runs slower."""
    batch_invariant: bool = False
    """Results that do not depend on neighbours in the batch, on GPUs that have it: for audits."""
    threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads."""
    start_seconds: Annotated[float, Field(gt=0.0)] = 900.0
    """Longest wait for a child that loads its model."""
    stall_seconds: Annotated[float, Field(gt=0.0)] = 3600.0
    """Longest silence of a child at work."""


class VllmConfig(VllmPlace):
    """A vLLM child."""

    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    max_model_len: Annotated[int, Field(ge=16)] = 4096
    """Longest prompt and completion together, in tokens."""
    lora_rank: Annotated[int, Field(ge=0, le=512)] = 0
    """Largest rank of an adapter that it will be asked to answer with; 0: of the base alone."""
    constrained: bool = False
    """Load the tokenizer in the child as well, so that completions can be kept to a schema."""


class VllmChild:
    """A running child."""

    def __init__(
        self,
        config: VllmConfig,
        checkpoint: Path,
        log_path: Path,
        *,
        what: str,
        on_progress: Callable[[str], None] | None = None,
        script: Path | None = None,
    ) -> None:
        """Start the child and wait until it has loaded the model.

        Args:
            config: interpreter and engine.
            checkpoint: folder with the model.
            log_path: what the child prints is appended here.
            what: who it is, in messages ("vLLM for the verifier").
            on_progress: told what it is at, now and then.
            script: the child's program, for tests of this end.

        Raises:
            UserError: there is no such interpreter.
            InstrumentError: the child ended, or was not ready in time; it is gone.
        """
        self.config = config
        self.log_path = log_path
        self._what = what
        self._tell = on_progress or (lambda text: logger.info("%s", text))
        self._closed = False
        self._process, self._requests, self._replies = self._start(checkpoint, script)
        try:
            self.facts: Mapping[str, Any] = self._await("ready", config.start_seconds, "loading")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send a request and return its results.

        Raises:
            InstrumentError: the child crashed or stalled; it is gone.
        """
        if self._closed:
            raise InstrumentError(f"{self._what} has ended. {self._log()}")
        try:
            try:
                vllm_child.write_message(self._requests, message)
            except (BrokenPipeError, ValueError):
                raise self._crashed() from None
            results: list[dict[str, Any]] = self._await(
                "results", self.config.stall_seconds, "working"
            )
        except BaseException:
            self.close()  # also at Ctrl-C: a late answer would be taken for the next request's
            raise
        return results

    def close(self) -> None:
        """End the child and what it started; safe to call twice."""
        if self._closed:
            return
        self._closed = True  # its number may soon be another process's
        for stream in (self._requests, self._replies):
            with suppress(OSError):
                stream.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        with suppress(ProcessLookupError):  # its workers, or itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(
        self, checkpoint: Path, script: Path | None
    ) -> tuple[subprocess.Popen[bytes], BinaryIO, BinaryIO]:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            their_read, our_write = os.pipe()
            our_read, their_write = os.pipe()
            command = self._command(their_read, their_write, checkpoint, script)
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(their_read, their_write),
                    process_group=0,
                    env=child_environment(self.config),
                )
            except OSError as error:
                os.close(our_write)
                os.close(our_read)
                raise no_interpreter(self._what, self.config.python, error.strerror) from None
            finally:
                os.close(their_read)
                os.close(their_write)
        return process, os.fdopen(our_write, "wb"), os.fdopen(our_read, "rb", buffering=0)

    def _command(
        self, read_fd: int, write_fd: int, checkpoint: Path, script: Path | None
    ) -> list[str]:
        settings = {
            "checkpoint": str(checkpoint.absolute()),
            "engine": engine_arguments(self.config),
        }
        return [
            self.config.python,
            "-I",  # the script's folder holds modules called `vllm` and `transformers`
            str(script or vllm_child.__file__),
            str(read_fd),
            str(write_fd),
            json.dumps(settings),
        ]

    def _await(self, key: str, patience: float, doing: str) -> Any:  # noqa: ANN401
        """Return the message that has `key`; `patience` is how long nothing may come."""
        heard = told = started = time.monotonic()
        while True:
            if select.select([self._replies], [], [], _POLL_SECONDS)[0]:
                message = self._read()
                if key in message:
                    return message[key]
                heard = time.monotonic()
                done, of = message["progress"]
                doing = f"{done} of {of} requests done"
            now = time.monotonic()
            if now - heard > patience:
                raise InstrumentError(
                    f"{self._what} said nothing for {now - heard:.0f} s ({doing}). {self._log()}"
                )
            if now - told >= _TELL_SECONDS:
                told = now
                self._tell(f"{self._what}: {doing}, {now - started:.0f} s")

    def _read(self) -> dict[str, Any]:
        try:
            message = vllm_child.read_message(self._replies)
        except ValueError as error:
            raise InstrumentError(f"{self._what} sent {error}. {self._log()}") from None
        if message is None:
            raise self._crashed()
        return message

    def _crashed(self) -> InstrumentError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        code = self._process.returncode
        how = "closed its pipe" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            how += " (by a person, or by the kernel when memory runs out)" if code == -9 else ""
        return InstrumentError(f"{self._what} {how}. {self._log()}")

    def _log(self) -> str:
        lines = "\n".join(f"  {line}" for line in _last_lines(self.log_path))
        return f"Its log, {self.log_path}, ends:\n{lines or '  (empty)'}"


def no_interpreter(what: str, python: str, why: str | None) -> UserError:
    """Return the error of a missing interpreter: there is nothing to start `what` with."""
    return UserError(
        doing=f"starting {what}",
        got=f"no interpreter {python!r} ({why})",
        expected="the Python of an environment with vLLM",
        remedy="run `make vllm`, or set the path of another environment in runtime.vllm.python",
    )


def engine_arguments(config: VllmConfig) -> dict[str, Any]:
    """Return what vLLM's `LLM` is given, beside what the child sets for every engine."""
    grammar = {"backend": "guidance", "disable_any_whitespace": True}
    adapters = {"enable_lora": True, "max_loras": 1, "max_lora_rank": _lora_room(config.lora_rank)}
    return {
        **(adapters if config.lora_rank else {}),
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "kv_cache_memory_bytes": int(config.kv_cache_gib * 2**30),
        "enforce_eager": config.eager,
        # Ids in, ids out: one tokenizer, the parent's; a grammar alone needs one in the child.
        "skip_tokenizer_init": not config.constrained,
        "max_logprobs": 128,
    } | ({"structured_outputs_config": grammar} if config.constrained else {})


def _lora_room(rank: int) -> int:
    """Return the smallest of the sizes that vLLM has room for adapters in."""
    return next(size for size in _LORA_ROOM if size >= rank)


def child_environment(config: VllmConfig) -> dict[str, str]:
    """Return this process's environment as the child is to have it."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    own = {
        "OMP_NUM_THREADS": str(config.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads are counted here, not tied to cores
        "VLLM_BATCH_INVARIANT": str(int(config.batch_invariant)),
        # vLLM's own eager mode still compiles the function that ranks log-probabilities.
        "TORCHDYNAMO_DISABLE": str(int(config.eager)),
        # One process is enough for one device, all that a step is given; it ends with its parent.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    return kept | dict(_QUIET) | own | _own_device()


def _own_device() -> dict[str, str]:
    """Return the GPU of this process, where several train together and each has its own."""
    devices = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    rank = os.environ.get("LOCAL_RANK")
    if rank is None or len(devices) <= int(rank):
        return {}
    return {"CUDA_VISIBLE_DEVICES": devices[int(rank)]}


def _last_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    return [line for line in text.splitlines() if line.strip()][-_LOG_LINES:]
