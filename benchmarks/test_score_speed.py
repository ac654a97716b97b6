"""Speed of score inner products and sketches: beside one batch's forward and backward pass,
torch.func, Opacus and TRAK's projector.

The model has 0.81 million parameters, the batch 64 sequences of 24 tokens. `test_ratios` runs
everybody in turn, round after round, so that all see the same machine, and prints medians as
multiples of the batch. Peers that need an environment of their own are skipped where they are
missing: `pip install opacus==1.6.0 traker==0.3.2`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from groupwise.gradients.scores import score_gram, score_sketch, token_log_prob  # noqa: E402
from groupwise.gradients.sketch import CountSketch, SketchTotal, StoredScores  # noqa: E402

torch.set_num_threads(1)
WIDTH, VOCABULARY, LAYERS, ROLLOUTS, TOKENS, PROMPT, SKETCH = 128, 64, 4, 64, 24, 8, 2048
pytestmark = [
    pytest.mark.benchmark(group="scores of 64 x 24 tokens, 0.8 M parameters"),
    pytest.mark.filterwarnings("ignore"),
]


class Block(nn.Module):
    """Attention and a perceptron, each after its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        rows, length, _ = x.shape
        q, k, v = (
            self.attend(self.first(x)).view(rows, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """A decoder with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(128, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        x = self.token(input_ids) + self.place(
            torch.arange(input_ids.shape[1]).expand_as(input_ids)
        )
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model() -> Any:
    torch.manual_seed(0)
    return Transformer()


def batch(tokens: int = TOKENS) -> dict[str, Any]:
    random = torch.Generator().manual_seed(1)
    completion = (torch.arange(tokens) >= PROMPT).long().expand(ROLLOUTS, -1)
    return {
        "input_ids": torch.randint(0, VOCABULARY, (ROLLOUTS, tokens), generator=random),
        "completion_mask": completion,
    }


def one_batch(policy: Any, given: dict[str, Any]) -> None:
    """What training pays for the same rollouts: one forward and one backward pass, with the
    gradient of every weight.
    """
    policy.zero_grad(set_to_none=False)
    (token_log_prob(policy, given) * given["completion_mask"]).sum().backward()


def products_of(gradients: list[Any]) -> Any:
    """Inner products from stored per-rollout gradients: the peers' last step."""
    gram = torch.zeros(ROLLOUTS, ROLLOUTS)
    for value in gradients:
        flat = value.flatten(1)
        gram += flat @ flat.T
    return gram


def vmap_gram(policy: Any, given: dict[str, Any]) -> Any:
    """torch.func as its documentation has it, then the products."""
    from torch.func import functional_call, grad, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel

    weights = {name: p.detach() for name, p in policy.named_parameters()}

    def total(values: Any, ids: Any, mask: Any) -> Any:
        logits = functional_call(policy, values, (ids[None],))
        return -(
            nn.functional.cross_entropy(logits[0, :-1], ids[1:], reduction="none") * mask[1:]
        ).sum()

    with sdpa_kernel(SDPBackend.MATH):
        gradients = vmap(grad(total), in_dims=(None, 0, 0))(
            weights, given["input_ids"], given["completion_mask"]
        )
    return products_of(list(gradients.values()))


def opacus_gram() -> tuple[Any, Callable[[Any, dict[str, Any]], Any]]:
    """Opacus's wrapper around a model of its own, None where it is missing, and the function
    that uses it.
    """
    try:
        sampled = import_module("opacus.grad_sample")
    except ImportError:
        wrapped = None
    else:
        wrapped = sampled.GradSampleModule(model(), loss_reduction="sum", strict=False)

    def run(policy: Any, given: dict[str, Any]) -> Any:
        policy.zero_grad(set_to_none=True)
        (token_log_prob(policy, given) * given["completion_mask"]).sum().backward()
        gradients = [p.grad_sample for p in policy.parameters()]
        for p in policy.parameters():
            p.grad_sample = None
        return products_of(gradients)

    return wrapped, run


def test_batch(benchmark: BenchmarkFixture) -> None:
    policy, given = model(), batch()
    benchmark(lambda: one_batch(policy, given))


def test_gram(benchmark: BenchmarkFixture) -> None:
    policy, given = model(), batch()
    gram = benchmark(lambda: score_gram(policy, given))
    assert gram.source.method == "hooks"


def test_gram_by_vmap(benchmark: BenchmarkFixture) -> None:
    policy, given = model(), batch()
    gram = benchmark(lambda: vmap_gram(policy, given))
    np.testing.assert_allclose(
        gram.numpy(), score_gram(policy, given).gram_NN, rtol=1e-3, atol=1e-2
    )


def test_gram_by_opacus(benchmark: BenchmarkFixture) -> None:
    policy, run = opacus_gram()
    if policy is None:
        pytest.skip("opacus is missing")
    given = batch()
    gram = benchmark(lambda: run(policy, given))
    np.testing.assert_allclose(
        gram.detach().numpy(), score_gram(model(), given).gram_NN, rtol=1e-3, atol=1e-2
    )


def test_sketch(benchmark: BenchmarkFixture) -> None:
    """From ids to sketches, gradients included."""
    policy, given = model(), batch()
    gram = benchmark(lambda: score_sketch(policy, given, width=SKETCH))
    assert gram.sketch_NK.shape == (ROLLOUTS, SKETCH)


def test_projection(benchmark: BenchmarkFixture) -> None:
    """The sketch alone, of gradients that are there already, hash included."""
    gradients = {name: torch.randn(ROLLOUTS, *p.shape) for name, p in model().named_parameters()}

    def run() -> Any:
        total = SketchTotal(ROLLOUTS, CountSketch(SKETCH, 0))
        for name, value in gradients.items():
            total.add(name, StoredScores(value))
        return total.sketch_NK

    assert benchmark(run).shape == (ROLLOUTS, SKETCH)


def test_projection_by_trak(benchmark: BenchmarkFixture) -> None:
    """TRAK's projector for the processor on gradients that are there already."""
    projectors = pytest.importorskip("trak.projectors")
    size = sum(p.numel() for p in model().parameters())
    projector = projectors.BasicProjector(
        size, SKETCH, 0, projectors.ProjectionType.rademacher, torch.device("cpu"), block_size=100
    )
    gradient = torch.randn(ROLLOUTS, size)
    benchmark.pedantic(lambda: projector.project(gradient, model_id=0), rounds=1, iterations=1)  # type: ignore[no-untyped-call]


def test_ratios(benchmark: BenchmarkFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody in turn, eleven rounds, for several lengths: the products cost 1 + N/(6 L)
    batches where all arithmetic is equally fast.
    """
    policy = model()
    wrapped, run = opacus_gram()
    benchmark.pedantic(lambda: score_gram(policy, batch()), rounds=1, iterations=1)  # type: ignore[no-untyped-call]
    for tokens in (TOKENS, 48, 96):
        medians = in_turn(competitors(policy, wrapped, run, batch(tokens)), rounds=11)
        with capsys.disabled():
            print(f"\n{ROLLOUTS} x {tokens} tokens:", end=" ")
            print(
                "; ".join(
                    f"{name} {1e3 * seconds:.0f} ms = {seconds / medians['one batch']:.2f}x"
                    for name, seconds in medians.items()
                )
            )


def competitors(
    policy: Any, wrapped: Any, run: Callable[[Any, Any], Any], given: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Everybody on the same batch."""
    return {
        "one batch": lambda: one_batch(policy, given),
        "score_gram": lambda: score_gram(policy, given),
        "score_sketch": lambda: score_sketch(policy, given, width=SKETCH),
        "torch.func": lambda: vmap_gram(policy, given),
        **({"opacus": lambda: run(wrapped, given)} if wrapped is not None else {}),
    }


def in_turn(jobs: dict[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """Median seconds of each job, all jobs once a round."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            # once unmeasured: each then finds the memory as it left it itself, not as its neighbour
            # did
            job()
            start = time.perf_counter()
            job()
            taken[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}
