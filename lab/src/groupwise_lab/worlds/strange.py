r"""Worlds in which an interval is to hold although nobody made it for them: prompts whose rewards
have tails, whose success is rare, that are copies of each other or nearly; curves that do what a
smooth rise does not; the recursion of heavy ball. Each world's half is drawn from its name: rules
are chosen on one half, and what they are worth is reported on the other. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from groupwise.arrays import Float, Places
from groupwise_lab.worlds.bandit import BanditWorld, softmax_world
from groupwise_lab.worlds.runs import autoregressive_noise

PROMPTS, ARMS, WIDTH = 4000, 6, 12
HALVES = "chosen on", "reported on"


def half(world: str) -> str:
    """The half that a world is in."""
    return str(np.random.default_rng([20261130, *world.encode()]).choice(HALVES))


NoiseDraw = Callable[[tuple[int, int]], Float]


def right_or_wrong(rng: Generator, difficulty: float = 0.0, shared: float = 0.0) -> BanditWorld:
    """Rewards of 0 and 1, whose mean falls as the difficulty rises; prompts may share features."""
    length_P = np.exp(0.3 * rng.standard_normal(PROMPTS))
    feature_PAD = length_P[:, None, None] * rng.standard_normal((PROMPTS, ARMS, WIDTH))
    if shared:
        feature_PAD += shared * rng.standard_normal((ARMS, WIDTH))
    parameter_D, wanted_D = rng.standard_normal((2, WIDTH)) / np.sqrt(WIDTH)
    merit_PA = 2 * feature_PAD @ wanted_D + rng.standard_normal((PROMPTS, ARMS))
    merit_PA -= difficulty + rng.standard_normal((PROMPTS, 1))
    return softmax_world(feature_PAD, parameter_D, 1 / (1 + np.exp(-merit_PA)), binary=True)


def graded(rng: Generator, spread: float = 0.0, noise: NoiseDraw | None = None) -> BanditWorld:
    """Scores in pairs of either sign, whose length differs between prompts by a lognormal law;
    rewards linear in them, with a noise.
    """
    length_P = np.exp(spread * rng.standard_normal(PROMPTS))
    half_PAD = rng.standard_normal((PROMPTS, ARMS, WIDTH))
    score_POD = length_P[:, None, None] * np.concatenate([half_PAD, -half_PAD], axis=1)
    slope_PD = 0.3 * (np.eye(WIDTH)[0] + rng.standard_normal((PROMPTS, WIDTH)) / WIDTH**0.5)
    reward_PO = np.einsum("pod,pd->po", score_POD, slope_PD)
    reward_PO += (noise or rng.standard_normal)(reward_PO.shape)
    equal = np.full((PROMPTS, 2 * ARMS), 0.5 / ARMS)
    return BanditWorld(equal, score_POD, reward_PO, np.full(PROMPTS, 1 / PROMPTS))


def in_templates(world: BanditWorld, rng: Generator, variants: int, spread: float) -> BanditWorld:
    """As many prompts in templates, whose variants differ in the length of their scores alone."""
    like_P = np.arange(PROMPTS) // variants
    length_P = np.exp(spread * rng.standard_normal(PROMPTS))
    return replace(
        world,
        probability_PO=world.probability_PO[like_P],
        score_POD=world.score_POD[like_P] * length_P[:, None, None],
        reward_PO=world.reward_PO[like_P],
    )


def rarely_paid(world: BanditWorld, rng: Generator, times: float) -> BanditWorld:
    """One prompt in fifty pays so many times as much."""
    pay_P = np.where(rng.random(PROMPTS) < 0.02, times, 1.0)
    return replace(world, reward_PO=world.reward_PO * pay_P[:, None])


@dataclass(frozen=True)
class BatchDesign:
    """A world, and how a batch is drawn from it."""

    make: Callable[[Generator], BanditWorld]
    prompts: int = 64
    rollouts: int = 8
    variants: int = 1  # of each template, that follow one another in the world
    shuffled: bool = False  # or in the batch too

    def draw(self, world: BanditWorld, rng: Generator) -> tuple[Float, Float, Places, list[str]]:
        """Scores, rewards and labels of rollouts, and the texts of their prompts."""
        first_B = world.draw_prompts(self.prompts // self.variants, rng)
        first_B -= first_B % self.variants
        prompt_B = (first_B[:, None] + np.arange(self.variants)).ravel()
        if self.shuffled:
            rng.shuffle(prompt_B)
        score_ND, reward_N, label_N = world.sample_at(prompt_B, self.rollouts, rng)
        return score_ND, reward_N, label_N, [self._text(int(prompt_B[row])) for row in label_N]

    def _text(self, prompt: int) -> str:
        """Words of the template's own, and the number of the variant."""
        word = "".join(chr(97 + int(digit)) for digit in f"{prompt // self.variants:04}")
        return f"{word} or {word} but no {word} and {word} {prompt}"


BATCHES = {
    "right or wrong": BatchDesign(right_or_wrong),
    "groups of four": BatchDesign(right_or_wrong, rollouts=4),
    "eight prompts": BatchDesign(right_or_wrong, 8),
    "eight copies of eight prompts": BatchDesign(
        lambda rng: in_templates(right_or_wrong(rng), rng, 8, 0.0), variants=8
    ),
    "near-duplicates, eight of each": BatchDesign(
        lambda rng: in_templates(right_or_wrong(rng), rng, 8, 0.2), variants=8, shuffled=True
    ),
    "near-duplicates of normal rewards": BatchDesign(
        lambda rng: in_templates(graded(rng), rng, 4, 0.2), variants=4, shuffled=True
    ),
    "rare success": BatchDesign(lambda rng: right_or_wrong(rng, 5.0), rollouts=4),
    "rare success, groups of eight": BatchDesign(lambda rng: right_or_wrong(rng, 5.0)),
    "very rare success": BatchDesign(lambda rng: right_or_wrong(rng, 6.5)),
    "nearly all solved": BatchDesign(lambda rng: right_or_wrong(rng, -5.0)),
    "normal rewards, groups of four": BatchDesign(graded, rollouts=4),
    "normal rewards": BatchDesign(graded),
    "unlike lengths": BatchDesign(lambda rng: graded(rng, 0.5)),
    "very unlike lengths": BatchDesign(lambda rng: graded(rng, 0.8)),
    "four moments": BatchDesign(lambda rng: graded(rng, 0.0, lambda size: rng.standard_t(5, size))),
    "no fourth moment": BatchDesign(
        lambda rng: graded(rng, 0.0, lambda size: rng.standard_t(2.5, size))
    ),
    "skewed rewards": BatchDesign(
        lambda rng: graded(rng, 0.0, lambda size: rng.exponential(1, size) ** 2)
    ),
    "one prompt in fifty pays eightfold": BatchDesign(
        lambda rng: rarely_paid(graded(rng), rng, 8.0)
    ),
    "prompts that share most": BatchDesign(lambda rng: right_or_wrong(rng, 3.0, 4.0), 32),
}


ROWS = 200
TIME = np.linspace(0, 1, ROWS)


def saturating(rng: Generator) -> Float:
    """A rise that slows."""
    return np.asarray(0.8 - 0.6 * np.exp(-TIME / rng.uniform(0.1, 0.5)))


def logistic(rng: Generator, first: float = 0.25, last: float = 0.7, width: float = 0.1) -> Float:
    """A rise that begins slowly, about a moment of its own."""
    middle = rng.uniform(first, last)
    return np.asarray(0.2 + 0.6 / (1 + np.exp((middle - TIME) / rng.uniform(0.3 * width, width))))


def late_decline(rng: Generator) -> Float:
    """A rise, and from some moment on a smooth loss of .5."""
    way = np.clip((TIME - rng.uniform(0.05, 0.65)) / rng.uniform(0.2, 0.5), 0, 1)
    rise = 0.8 - 0.6 * np.exp(-TIME / rng.uniform(0.05, 0.2))
    return np.asarray(rise - 0.25 * (1 - np.cos(np.pi * way)))


def oscillating(rng: Generator) -> Float:
    """A swing that does not fade."""
    turns = 2 * np.pi * TIME / rng.uniform(0.1, 0.6)
    return 0.5 + 0.2 * np.sin(turns + rng.uniform(0, 6.28))


SHAPES: dict[str, Callable[[Generator], Float]] = {
    "saturating": saturating,
    "autoregressive": lambda _: np.full(ROWS, 0.5),
    "linear": lambda _: 0.2 + 0.6 * TIME,
    "logistic": logistic,
    "early logistic": lambda rng: logistic(rng, 0.05, 0.25),
    "step": lambda rng: np.where(rng.uniform(0.15, 0.85) < TIME, 0.7, 0.3),
    "oscillating": oscillating,
    "late decline": late_decline,
    "wandering": lambda rng: 0.5 + np.cumsum(rng.normal(0, 0.3 / ROWS**0.5, ROWS)),
    "delayed logistic": lambda rng: logistic(rng, 0.6, 0.9, 0.05),
}


def part_passed(shape: str, mean_T: Float, seen: int) -> float:
    """Part of a rise, or of a loss, that the rows seen hold."""
    if shape != "late decline":
        return float(mean_T[seen - 1] - 0.2) / 0.6
    top = int(mean_T.argmax())
    return float((mean_T[top] - mean_T[max(top, seen - 1)]) / np.ptp(mean_T[top:]))


@dataclass(frozen=True)
class HeavyBall:
    r"""The recursion $x_{t+1} = x_t + v_{t+1}$, $v_{t+1} = .9 v_t - a (x_t - .8)$, from .2 on."""

    force: float  # a, of an update
    noise: float  # deviation of the noise of a row
    memory: float = 0.0  # correlation of that noise with the next row's
    smoothing: int = 1  # updates that a row averages
    shock: float = 0.0  # deviation of the noise of an update

    def draw(self, rng: Generator, rows: int) -> tuple[Float, Float]:
        """The updates and the level that is logged, from one that has stood still."""
        before = self.smoothing - 1
        noise_T = autoregressive_noise(rng, rows + before, self.noise, self.memory)
        level, velocity, out = 0.2, 0.0, []
        for shock in self.shock * rng.standard_normal(rows + before):
            out.append(level)
            velocity = 0.9 * velocity + self.force * (0.8 - level) + shock
            level += velocity
        mean = np.full(self.smoothing, 1 / self.smoothing)
        value_T = np.asarray(np.convolve(out + noise_T, mean, "valid"))
        return np.arange(before, before + rows, dtype=float), value_T

    @property
    def truth(self) -> dict[str, float]:
        """The frequency and the damping ratio of its eigenvalues, its ends."""
        root = np.log(np.roots([1, self.force - 1.9, 0.9]).astype(complex))
        frequency = float(np.sqrt((root[0] * root[1]).real))
        damping = float(-root.sum().real / 2 / frequency)
        ends = {"start": 0.2, "plateau": 0.8}
        return {"natural_frequency": frequency, "damping_ratio": damping} | ends


BALLS = {
    "swinging": HeavyBall(0.02, 0.02),
    "swinging, little noise": HeavyBall(0.02, 0.005),
    "swinging, much noise": HeavyBall(0.02, 0.05),
    "swinging, noise that lasts": HeavyBall(0.02, 0.02, memory=0.8),
    "swinging, smoothed": HeavyBall(0.02, 0.02, smoothing=20),
    "swinging, shocks": HeavyBall(0.02, 0.02, shock=0.002),
    "swinging, strong shocks": HeavyBall(0.02, 0.02, shock=0.006),
    "slow, shocks": HeavyBall(0.004, 0.02, shock=0.001),
    "sluggish": HeavyBall(0.001, 0.02),
    "sluggish, noise that lasts": HeavyBall(0.001, 0.02, memory=0.8),
}
