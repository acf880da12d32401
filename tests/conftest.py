"""What every test runs under: nothing reports home, nothing is fetched, one thread a process.

Set at import, because Prefect, DVC and PyTorch read the environment when they are imported.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# A home for each test process (pytest-xdist starts several): two that migrate one new database at
# the same time break it.
_HOME = Path(tempfile.mkdtemp(prefix="dynamicrubric-tests-"))

SETTINGS = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HOME": str(_HOME / "huggingface"),
    "MPLCONFIGDIR": str(_HOME / "matplotlib"),
    "PREFECT_HOME": str(_HOME / "prefect"),
    # A flow without a server starts one for itself; on a busy machine that takes more than 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "DVC_SITE_CACHE_DIR": str(_HOME / "dvc"),
    "DVC_GLOBAL_CONFIG_DIR": str(_HOME / "dvc-config"),
    "DVC_SYSTEM_CONFIG_DIR": str(_HOME / "dvc-config"),
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Tests that make git repositories depend on nobody's name, hooks or signing key.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
}
os.environ.update(SETTINGS)
# Servers and trackers of the person who runs the tests are none of the tests' business, nor is the
# repository of a hook that runs them.
for name in (
    "DYNAMICRUBRIC_FORK_HOST",
    "DYNAMICRUBRIC_FORK_HOST_THREADS",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_WORK_TREE",
    "MLFLOW_TRACKING_URI",
    "PREFECT_API_KEY",
    "PREFECT_API_URL",
    "PREFECT_PROFILE",
):
    os.environ.pop(name, None)

# No example is timed, and a run tests what the last one did: what fails is what was changed.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_unconfigure() -> None:
    """Remove this process's home."""
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture
def project_root() -> Path:
    """The checkout that is being tested."""
    return ROOT


@pytest.fixture
def params_text() -> str:
    """The default study's settings; params.yaml may have a choice of what to run laid over them."""
    return (ROOT / "profiles/postcards.yaml").read_text(encoding="utf-8")


@pytest.fixture
def fake_study(tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Return a function that writes a finished study without training; see `fakestudy.py`."""
    helpers = str(ROOT / "tests" / "report")
    sys.path.insert(0, helpers)
    from fakestudy import FakeStudy

    yield lambda **options: FakeStudy(tmp_path / "project", **options)
    sys.path.remove(helpers)


@contextmanager
def _without_pictures(*drawn: str) -> Iterator[None]:
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def save(figure: Any, path: Path, **options: Any) -> None:
        if path.name.startswith(drawn):
            draw(figure, path, **options)
        else:
            path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save)
        yield


@pytest.fixture(scope="session")
def without_pictures() -> Callable[[], Any]:
    """Return a context in which pictures are files without a picture, but for those named.

    It takes what the names of the drawn ones begin with.

    Drawing is nearly all of a report's time; tests of words and tables do without.
    """
    return _without_pictures


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Run a test in the context of `without_pictures`."""
    with _without_pictures():
        yield


CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if think is defined and not think %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)


@pytest.fixture(scope="session")
def chat_tokenizer() -> Callable[..., object]:
    """Return a function from a chat template to a small byte-level tokenizer with control tokens.

    `<think>` is added without being special, as in the models that have it.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    def make(template: str = CHATML) -> PreTrainedTokenizerFast:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<|bos|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        words = ["system user assistant yes no Yes No Criterion: the response", "im_start think"]
        tokenizer.train_from_iterator(words * 9, trainer)
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|im_end|>"
        )
        fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
        fast.add_tokens([AddedToken("<think>"), AddedToken("</think>")])
        fast.chat_template = template
        return fast

    return make
