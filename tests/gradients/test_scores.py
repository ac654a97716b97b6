"""Scores: every method against autograd one rollout after another, on models with every trap
that we know of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.gradients.sketch import bucket_and_sign

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from groupwise.gradients import sketch as score_sketches  # noqa: E402
from groupwise.gradients.scores import (  # noqa: E402
    log_probability,
    score_gram,
    score_sketch,
    token_log_prob,
)

VOCABULARY, WIDTH, LONGEST = 11, 8, 12


class Scale(nn.Module):
    """RMSNorm as one writes it oneself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """Causal attention and a perceptron."""

    def __init__(self, norm: type[nn.Module], *, in_place: bool) -> None:
        super().__init__()
        self.norm, self.second = (
            (nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)) if norm is nn.LayerNorm else (norm(), norm())
        )
        self.attend, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.act = nn.ReLU(inplace=in_place)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = (
            self.attend(self.norm(x)).view(rows, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(self.act(self.up(self.second(x))))


class Transformer(nn.Module):
    """A small decoder; its arguments are traps for whoever takes gradients layer by layer."""

    def __init__(
        self,
        *,
        norm: type[nn.Module] = nn.LayerNorm,
        positions: str = "shared",
        tied: str = "no",
        twice: bool = False,
        in_place: bool = True,
        padding: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH, padding_idx=padding)
        self.positions, self.tied, self.twice = positions, tied, twice
        if positions == "bare":
            self.place: Any = nn.Parameter(torch.randn(LONGEST, WIDTH))
        else:
            self.place = nn.Embedding(LONGEST, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(norm, in_place=in_place) for _ in range(2)])
        if tied != "function":
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied == "module":
            self.head.weight = self.token.weight
        self.unused = nn.Linear(2, 2)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        number = torch.arange(input_ids.shape[1])
        if self.positions == "bare":
            where = self.place[: input_ids.shape[1]]
        elif self.positions == "flat":
            where = self.place(number)
        else:
            where = self.place(
                number[None] if self.positions == "shared" else number.expand_as(input_ids)
            )
        x = self.dropout(self.token(input_ids) + where)
        for block in [*self.blocks, *self.blocks[: self.twice]]:
            x = block(x)
        return x @ self.token.weight.T if self.tied == "function" else self.head(x)


def batch(rollouts: int = 5, length: int = 9, seed: int = 1) -> dict[str, Any]:
    """Rollouts of unequal lengths; padding right."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (rollouts, length), generator=random)
    real = length - torch.arange(rollouts) % 3
    place = torch.arange(length).expand(rollouts, -1)
    attention = (place < real[:, None]).long()
    prompt = torch.minimum(2 + torch.arange(rollouts) % 4, real - 1)
    return {
        "input_ids": ids,
        "attention_mask": attention,
        "completion_mask": attention * (place >= prompt[:, None]),
    }


def by_hand(
    model: Any, given: dict[str, Any], *, temperature: float = 1.0, names: list[str] | None = None
) -> Any:
    """The judge: for each rollout a forward pass of its own real tokens, log-softmax, and
    autograd. Returns (N, D).
    """
    wanted = [p for name, p in model.named_parameters() if names is None or name in names]
    rows = []
    training = model.training
    model.eval()
    for row in range(len(given["input_ids"])):
        real = given["attention_mask"][row].bool()
        ids, scored = given["input_ids"][row][real], given["completion_mask"][row][real]
        output = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None])
        log_prob = (getattr(output, "logits", output)[0, :-1] / temperature).log_softmax(-1)
        total = sum(log_prob[t - 1, ids[t]] for t in range(1, len(ids)) if scored[t])
        gradients = torch.autograd.grad(total, wanted, allow_unused=True)
        parts = [
            torch.zeros_like(p) if g is None else g for p, g in zip(wanted, gradients, strict=True)
        ]
        rows.append(torch.cat([part.flatten() for part in parts]))
    model.train(training)
    return torch.stack(rows)


def products(score_ND: Any) -> np.ndarray:
    return np.asarray((score_ND @ score_ND.T).numpy())


def close(gram: np.ndarray, truth: np.ndarray, tolerance: float = 1e-10) -> None:
    assert np.abs(gram - truth).max() <= tolerance * np.abs(truth).max()


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plain": (Transformer, "hooks+loop"),  # `unused` never runs: no hook sees it
    "own norm": (lambda: Transformer(norm=Scale, positions="each"), "hooks+loop"),
    "tied as a module": (lambda: Transformer(tied="module"), "hooks+loop"),
    "tied as a function": (lambda: Transformer(tied="function"), "hooks+loop"),
    "tied with padding": (lambda: Transformer(tied="module", padding=3), "hooks+loop"),
    "bare positions": (lambda: Transformer(positions="bare"), "hooks+loop"),
    "positions of one dimension": (lambda: Transformer(positions="flat"), "hooks+loop"),
    "one block twice": (lambda: Transformer(twice=True), "hooks+loop"),
    "dropout": (lambda: Transformer(dropout=0.5).train(), "hooks+loop"),
    "torch's encoder": (lambda: Encoder(), "hooks+loop"),  # noqa: PLW0108  # its attention uses out_proj.weight without calling out_proj
}


class Encoder(nn.Module):
    """Torch's own layer, whose attention takes the weights of its children in its own hands."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(
            input_ids.shape[1], dtype=torch.float64
        )
        return self.head(self.layer(self.token(input_ids), src_mask=mask))


def build(make: Callable[[], Any]) -> Any:
    """A model in double precision from a fixed seed, with the state of torch's generator as it
    was.
    """
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return make().double()


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "length", [9, 5]
)  # 5: as long as the batch has rollouts, so that shapes do not tell one from the other
def test_every_method_is_exact(name: str, length: int) -> None:
    make, method = MODELS[name]
    model, given = build(make), batch(length=length)
    truth = products(by_hand(model, given))
    gram = score_gram(model, given)
    close(gram.gram_NN, truth)
    assert gram.source.method == method
    assert gram.source.coordinates == sum(p.numel() for p in model.parameters())
    close(score_gram(model, given, method="loop").gram_NN, truth)


@each_case("numbers", [64, 1 << 20])
@each_case("tied", ["no", "module"])
def test_small_blocks_change_no_products(
    monkeypatch: pytest.MonkeyPatch, numbers: int, tied: str
) -> None:
    monkeypatch.setattr(score_sketches, "BLOCK_NUMBERS", numbers)
    model, given = build(lambda: Transformer(tied=tied)), batch(rollouts=18)
    close(score_gram(model, given).gram_NN, products(by_hand(model, given)))


def test_output_changed_in_place_is_covered_otherwise() -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.middle = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            x = self.middle(self.token(input_ids))
            return self.head(x.relu_())

    model, given = build(Hasty), batch()
    gram = score_gram(model, given)
    close(gram.gram_NN, products(by_hand(model, given)))
    assert gram.source.method == "hooks+loop"


def test_input_changed_in_place_is_found() -> None:
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            x = self.token(input_ids).tanh()
            logits = self.head(x)
            x.detach().mul_(2.0)
            return logits

    with pytest.raises(InvalidArgumentError, match="was changed: use method='loop'"):
        score_gram(build(Greedy), batch(), parameters="head.*")


def test_gradients_are_switched_back_and_none_is_left() -> None:
    model = build(Transformer)
    model.token.weight.requires_grad_(False)
    model.train()
    source = score_gram(model, batch()).source
    assert source.left_out == ("token.weight",)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["token.weight"]
    assert all(p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@each_case(
    "pattern", ["blocks.1.*", ["blocks.0.up.weight", "head.*"], "token.weight", "blocks.?.norm.*"]
)
def test_a_subset_of_layers(pattern: str | list[str]) -> None:
    model, given = build(Transformer), batch()
    gram = score_gram(model, given, parameters=pattern)
    close(gram.gram_NN, products(by_hand(model, given, names=list(gram.source.parameters))))
    assert set(gram.source.parameters) | set(gram.source.left_out) == {
        name for name, _ in model.named_parameters()
    }


def test_padding_on_the_left_changes_nothing() -> None:
    model, given = build(Transformer), batch()
    real = given["attention_mask"].sum(1)
    left = {
        name: torch.stack([row.roll(9 - int(n)) for row, n in zip(item, real, strict=True)])
        for name, item in given.items()
    }
    close(score_gram(model, left).gram_NN, score_gram(model, given).gram_NN, 1e-12)


def test_temperature_divides_the_logits() -> None:
    model, given = build(Transformer), batch()
    gram = score_gram(model, given, temperature=0.7)
    close(gram.gram_NN, products(by_hand(model, given, temperature=0.7)))
    assert gram.source.temperature == 0.7


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_aggregations(micro_batch: int | None) -> None:
    model, given = build(Transformer), batch()
    score, length = by_hand(model, given), given["completion_mask"].sum(1).double()
    weights = {
        "sum": torch.ones(5, dtype=torch.float64),
        "sequence_mean": 1 / length,
        "batch_token_mean": 5 / length.sum().expand(5),
    }
    for aggregation, weight in weights.items():
        gram = score_gram(model, given, aggregation=aggregation, micro_batch=micro_batch)  # type: ignore[arg-type]
        close(gram.gram_NN, products(score * weight[:, None]))
        assert gram.source.aggregation == aggregation


def test_an_empty_completion_has_the_score_zero() -> None:
    model, given = build(Transformer), batch()
    given["completion_mask"][2] = 0
    for aggregation in ("sum", "sequence_mean"):
        gram = score_gram(model, given, aggregation=aggregation).gram_NN
        assert not gram[2].any()
        assert gram[1, 1] > 0


def test_micro_batches_and_a_memory_limit_change_nothing() -> None:
    model, given = build(Transformer), batch(rollouts=7)
    whole = score_gram(model, given)
    parts = score_gram(model, given, micro_batch=3)
    close(parts.gram_NN, whole.gram_NN, 1e-12)
    assert (whole.source.passes, parts.source.passes) == (1, 3)
    limited = score_sketch(model, given, width=64, memory_limit=60_000)
    assert limited.source.micro_batch < 7
    np.testing.assert_allclose(
        limited.sketch_NK, score_sketch(model, given, width=64).sketch_NK, atol=1e-12
    )
    with pytest.raises(
        InvalidArgumentError,
        match=r"expected memory for one rollout, about .* bytes; got memory_limit=10",
    ):
        score_sketch(model, given, width=64, memory_limit=10)


def test_half_precision_is_added_up_in_double() -> None:
    model, given = build(Transformer), batch()
    truth = products(by_hand(model, given))
    gram = score_gram(model.to(torch.bfloat16), given)
    assert gram.gram_NN.dtype == np.float64
    close(gram.gram_NN, truth, 0.1)  # 8 bits of mantissa through two blocks


def test_a_head_over_a_vocabulary_leaves_the_prompt_out() -> None:
    model, given = build(lambda: Transformer(tied="module")), batch()
    given["completion_mask"][:, :6] = 0
    close(score_gram(model, given).gram_NN, products(by_hand(model, given)))


# Sketches


def test_the_map_is_the_same_everywhere() -> None:
    """The first values of the map, written down: another machine, another version or another
    order must give the same.
    """
    bucket, sign = bucket_and_sign("layer.weight", np.array([0, 1, 2, 10**12]), width=2048, seed=7)
    assert bucket.tolist() == MAP[0]
    assert sign.tolist() == MAP[1]


MAP: tuple[list[int], list[int]] = ([1666, 1479, 274, 824], [-1, 1, -1, 1])


def test_sketches_are_the_map_applied_to_the_scores() -> None:
    model, given = build(lambda: Transformer(tied="module")), batch()
    score, start = by_hand(model, given).numpy(), 0
    truth = np.zeros((5, 32))
    for name, parameter in model.named_parameters():
        bucket, sign = bucket_and_sign(name, np.arange(parameter.numel()), width=32, seed=9)
        for place in range(parameter.numel()):
            truth[:, bucket[place]] += sign[place] * score[:, start + place]
        start += parameter.numel()
    for method in ("auto", "loop"):
        gram = score_sketch(model, given, width=32, seed=9, method=method)
        np.testing.assert_allclose(gram.sketch_NK, truth, atol=1e-12)
        assert gram.sketch_NK.shape[1] == 32


def test_sketches_of_parts_belong_together() -> None:
    """Micro-batches concatenate, and the sketches of two halves of the parameters add up to that
    of all.
    """
    model, given = build(Transformer), batch()
    whole = score_sketch(model, given, width=64).sketch_NK
    np.testing.assert_allclose(
        score_sketch(model, given, width=64, micro_batch=2).sketch_NK, whole, atol=1e-12
    )
    halves = [
        score_sketch(model, given, width=64, parameters=p).sketch_NK
        for p in ("blocks.*", ["token*", "place*", "head*", "unused*"])
    ]
    np.testing.assert_allclose(sum(halves), whole, atol=1e-12)


@pytest.mark.slow
def test_inner_products_of_sketches_are_unbiased() -> None:
    """Mean over 400 seeds within 4 standard errors, and the variance below its bound.

    False alarms: 10 distinct inner products at 4 standard errors, 6e-4 in all; a variance 1.3 times
    its bound, at most, at 400 draws less.
    """
    model, given = build(Transformer), batch()
    truth = score_gram(model, given).gram_NN
    draws = []
    for seed in range(400):
        sketch = (
            score_sketch(model, given, width=128, seed=seed, parameters="*").sketch_NK
            if seed < 1
            else sketched(model, given, seed)
        )
        draws.append(sketch @ sketch.T)
    mean, deviation = np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1)
    assert (np.abs(mean - truth) < 4 * deviation / 20).all()
    norm = np.diag(truth)
    assert (deviation**2 < 1.3 * (np.outer(norm, norm) + truth**2) / 128).all()


def sketched(model: Any, given: dict[str, Any], seed: int) -> np.ndarray:
    """The map on stored scores: the same sketch as `score_sketch`, as the tests above show,
    without 400 backward passes.
    """
    key = id(model)
    if key not in STORED:
        STORED[key] = by_hand(model, given).numpy()
    score, result, start = STORED[key], np.zeros((len(STORED[key]), 128)), 0
    for name, parameter in model.named_parameters():
        bucket, sign = bucket_and_sign(name, np.arange(parameter.numel()), width=128, seed=seed)
        np.add.at(result.T, bucket, (score[:, start : start + parameter.numel()] * sign).T)
        start += parameter.numel()
    return result


STORED: dict[int, np.ndarray] = {}


# Mistakes


@each_case(
    ("changes", "message"),
    [
        (
            {"aggregation": "mean"},
            "expected aggregation to be one of sum, sequence_mean, batch_token_mean; got 'mean'",
        ),
        ({"method": "fast"}, "expected method to be one of auto, loop; got 'fast'"),
        ({"temperature": 0.0}, "expected a positive temperature, got 0.0"),
        ({"parameters": "layers.*"}, "got 'layers.*' that fits none: names are token.weight"),
        ({"micro_batch": 0}, "expected micro_batch of at least 1, got 0"),
    ],
)
def test_mistakes_are_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        score_gram(build(Transformer), batch(), **changes)
    assert "\n" not in str(caught.value)


def test_batches_that_do_not_fit() -> None:
    model, given = build(Transformer), batch()
    with pytest.raises(InsufficientDataError, match="at least one rollout"):
        score_gram(model, {})
    with pytest.raises(InvalidArgumentError, match="got no completion_mask"):
        score_gram(model, {"input_ids": given["input_ids"]})
    with pytest.raises(InvalidArgumentError, match="equally many rollouts"):
        score_gram(model, {**given, "completion_mask": given["completion_mask"][:2]})
    with pytest.raises(InvalidArgumentError, match="first token is already completion: put BOS"):
        score_gram(model, {**given, "completion_mask": given["attention_mask"]})
    with pytest.raises(InvalidArgumentError, match="outside it"):
        score_gram(model, {**given, "completion_mask": torch.ones_like(given["input_ids"])})
    model.head.weight.data[0, 0] = float("nan")
    with pytest.raises(
        InvalidArgumentError,
        match="expected finite scores, got NaN or infinity for rollout 0 and 4 more",
    ):
        score_gram(model, given)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InvalidArgumentError, match="none requires a gradient"):
        score_gram(model, given)


def test_width_of_a_sketch() -> None:
    with pytest.raises(InvalidArgumentError, match="between 1 and 2147483648 buckets; got width=0"):
        score_sketch(build(Transformer), batch(), width=0)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_module_under_two_names_is_scored_and_left_as_it_was(method: Any) -> None:
    """A looped block: one module, two names in the list.

    The optimiser's parameters must still be the model's afterwards.
    """

    class Mix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.norm = nn.Parameter(torch.randn(6, 6)), nn.LayerNorm(6)

        def forward(self, x: Any) -> Any:
            return x + self.norm(x @ self.weight).tanh()

    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            block = Mix()
            self.embedding, self.blocks, self.head = (
                nn.Embedding(13, 6),
                nn.ModuleList([block, block]),
                nn.Linear(6, 13),
            )

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            x = self.embedding(input_ids).cumsum(1)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Looped().double()
    ids = torch.arange(40).reshape(5, 8) % 13
    given = {
        "input_ids": ids,
        "completion_mask": torch.ones_like(ids).index_fill(1, torch.tensor([0]), 0),
    }
    before = dict(model.named_parameters())
    judged = []
    for row in ids:
        total = model(row[None])[:, :-1].log_softmax(-1).gather(2, row[None, 1:, None]).sum()
        judged.append(
            torch.cat(
                [part.flatten() for part in torch.autograd.grad(total, list(before.values()))]
            )
        )
    judge = torch.stack(judged)
    gram = score_gram(model, given, method=method)
    assert np.abs(gram.gram_NN - (judge @ judge.T).numpy()).max() < 1e-9
    assert all(
        parameter is before[name] and parameter.requires_grad
        for name, parameter in model.named_parameters()
    )


def test_log_probabilities_over_a_large_vocabulary_are_exact_to_rounding() -> None:
    """Against double precision: cross_entropy is 1.2e-5 off, and its gradient 6e-6 of its norm."""
    draw = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(4, 10, 49152, generator=draw)
    logits[..., 0] += 25  # one likely token, as after a prompt
    token = torch.zeros(4, 10, dtype=torch.long)
    token[:, 0] = 7

    def value_and_slope(precision: Any) -> tuple[Any, Any]:
        at = logits.to(precision).requires_grad_()
        value = log_probability(at, token)
        return value.detach().double(), torch.autograd.grad(value.sum(), at)[0].double()

    (single, slope), (double, truth) = (
        value_and_slope(torch.float32),
        value_and_slope(torch.float64),
    )
    assert (
        float((single - double).abs().max()) < 4e-6
    )  # of numbers up to 50, whose own rounding is 2e-6
    assert float((slope - truth).norm() / truth.norm()) < 2e-6


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_the_sketch_of_a_weighted_sum_is_the_weighted_sum_of_sketches(
    micro_batch: int | None,
) -> None:
    """In one pass, and where pairs of micro-batches meet in several."""
    model, given = Transformer().double(), batch()
    weight_N = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    gram = score_gram(
        model,
        given,
        weight_N=weight_N,
        sketch=score_sketches.CountSketch(64, 3),
        micro_batch=micro_batch,
    )
    each = score_sketch(model, given, width=64, seed=3).sketch_NK
    assert gram.gradient_K == pytest.approx(weight_N @ each, rel=1e-9, abs=1e-12)


def test_the_entropy_stands_beside_the_log_probability_of_each_token() -> None:
    model, given = Transformer().double().eval(), batch()
    with torch.no_grad():
        score_NL, entropy_NL = token_log_prob(model, given, entropy=True)
        probability = model(given["input_ids"]).softmax(-1)[:, :-1]
    expected = -(probability * probability.log()).sum(-1)
    first = int(given["completion_mask"].any(0).int().argmax())
    assert torch.equal(score_NL, token_log_prob(model, given))
    assert torch.allclose(entropy_NL[:, first:], expected[:, first - 1 :])
    assert not entropy_NL[:, :first].any()
