"""benchmarks/gpu_step.py: on a GPU with the shape of Qwen3-8B, on a CPU with a tiny one."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PARTS = [
    "policy: sampling", "policy: judging", "policy: training",
    "generator: sampling", "generator: training", "verification",
]  # fmt: skip

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which imports its neighbours by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu_step")


@pytest.fixture
def flops(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("flops")


def check(parts: list[Any], load: Any) -> dict[str, Any]:
    """Check what holds on any device; return the parts by name."""
    found = {part.name: part for part in parts}
    assert list(found) == PARTS
    assert all(part.seconds > 0 and part.flops > 0 for part in parts)
    rows = load.prompts * load.responses
    assert rows < found["policy: sampling"].tokens < found["policy: training"].tokens
    assert found["policy: sampling"].flops < found["policy: training"].flops
    assert found["verification"].tokens > found["policy: judging"].tokens
    return found


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here: all of it runs there")
def test_gpu_step_of_a_tiny_model_runs_on_a_cpu(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = benchmark.measure("tiny", torch.float32, tmp_path)
    check(parts, benchmark.SHAPES["tiny"][1])
    assert all(part.memory is None for part in parts)
    benchmark.show(parts, "CPU", "float32")
    assert "its peak: unknown" in capsys.readouterr().out


@pytest.mark.gpu
@needs_gpu
def test_gpu_step_of_qwen3_8bs_shape_fits_and_is_measured(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    if total < 40 * 2**30:
        pytest.skip(f"{total / 2**30:.0f} GiB of GPU memory; the weights alone are 15 GiB")
    parts = benchmark.measure("qwen3-8b", torch.bfloat16, tmp_path)
    found = check(parts, benchmark.SHAPES["qwen3-8b"][1])
    benchmark.show(parts, torch.cuda.get_device_name(), "bfloat16")
    peak = benchmark.peak_flops(torch.cuda.get_device_name(), "bfloat16")
    for part in found.values():
        assert 15 * 2**30 < part.memory < total
        assert peak is None or part.flops / part.seconds < peak


@pytest.mark.gpu
@needs_gpu
def test_packed_verdicts_on_a_gpu_are_those_of_single_prompts(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    model, load = benchmark.SHAPES["tiny"]
    config = Qwen3Config(**model, rope_theta=1e6, tie_word_embeddings=False)
    models = benchmark.random_models(config, torch.float32, tmp_path / "base")
    bench = benchmark.Bench(config, load, models, tmp_path)
    groups = bench.verifier.questions(bench.requests()).groups
    packed, single = (bench.verifier.masses(groups, way) for way in ("packed", "single"))
    for key, (yes, no) in packed.items():
        ours, theirs = (torch.tensor(y - n).sigmoid() for y, n in ((yes, no), single[key]))
        assert abs(float(ours - theirs)) <= 1e-3


def test_forward_flops_are_those_that_torch_counts(flops: ModuleType) -> None:
    config = Qwen3Config(
        vocab_size=1000, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attn_implementation="eager",
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    length = 24
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros((1, length), dtype=torch.long), use_cache=False)
    # Eager attention computes the masked half as well.
    expected = flops.forward_flops(config, flops.Work(length, length * length, length))
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-3)


def test_work_counts_a_causal_rows_tokens_and_contexts(flops: ModuleType) -> None:
    assert flops.Work.scoring([(3, 2)]) == flops.Work(5, 1 + 2 + 3 + 4 + 5, 2)
    assert flops.Work.sampling([(3, 2), (1, 1)]) == flops.Work(5, 1 + 2 + 3 + 4 + 1, 3)


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("NVIDIA H200", "bfloat16", 989e12),
        ("NVIDIA H100 PCIe", "bfloat16", 756e12),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312e12),
        ("NVIDIA L40S", "bfloat16", 362e12),
        ("NVIDIA H200", "float32", None),
        ("NVIDIA H200 MIG 1g.18gb", "bfloat16", None),
        ("NVIDIA A1000", "bfloat16", None),
        ("CPU", "bfloat16", None),
    ],
)
def test_peak_of_a_device_is_known_or_said_to_be_unknown(
    flops: ModuleType, device: str, dtype: str, expected: float | None
) -> None:
    assert flops.peak_flops(device, dtype) == expected
