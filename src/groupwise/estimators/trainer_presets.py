r"""The advantages of the trainers that people run, version by version, as `AdvantageSpec`s.

A version is the first in which we saw the definition, among those that we looked at, not necessarily the first that has it. "called"
says that the framework's own function gave the same digits (tests/optional/test_trainer_presets.py), "read" that its source was read.
Estimators that need a critic, log-probabilities or turns are left out.
"""

from __future__ import annotations

from dataclasses import replace

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.advantage_specs import AdvantageSpec, Whitening

_TRL = AdvantageSpec(
    "trl",
    "grpo",
    scale="group_std",
    epsilon=1e-4,
    reduction="nan",
    missing="zero",
    since="1.6.0",
    evidence="called",
    note="GRPOTrainer, scale_rewards='group', the default.",
)
_TRL_OLD = replace(
    _TRL,
    reduction="row",
    missing="counts_as_zero",
    since="0.16.1",
    until="1.6.0",
    evidence="read",
    note="A reward of None counts as 0 and moves the group's mean.",
)
_TRL_RLOO = replace(
    _TRL, estimator="rloo", baseline="leave_one_out", scale="none", epsilon=0.0, note="RLOOTrainer; the KL term of the reward comes before."
)
_TRL_WHITENED = Whitening("rollout", ddof=1, epsilon=1e-4, place="outside")
_TRL_GDPO = replace(
    _TRL,
    estimator="gdpo",
    several="standardise_first",
    whitening=_TRL_WHITENED,
    all_equal="not zero in general: the mean of the batch moves",
    note="GRPOTrainer, multi_objective_aggregation='normalize_then_sum'.",
)
_TRL_ASYNC = AdvantageSpec(
    "trl",
    "async_grpo",
    scale="group_std",
    ddof=0,
    epsilon=1e-8,
    singleton="zero",
    missing="zero",
    since="1.6.0",
    evidence="called",
    note="AsyncGRPOTrainer computes in float64 with NumPy.",
)


def _trl() -> tuple[AdvantageSpec, ...]:
    """TRL: GRPO in its scales, GDPO, RLOO and the asynchronous trainer."""
    return (
        _TRL,
        replace(_TRL, estimator="grpo_batch", scale="batch_std", note="GRPOTrainer, scale_rewards='batch'."),
        replace(_TRL, estimator="grpo_none", scale="none", epsilon=0.0, note="GRPOTrainer, scale_rewards='none' or False: Dr. GRPO."),
        _TRL_OLD,
        replace(_TRL_OLD, estimator="grpo_batch", scale="batch_std", since="0.22.2"),
        replace(_TRL_OLD, estimator="grpo_none", scale="none", epsilon=0.0, since="0.18.2"),
        _TRL_GDPO,
        replace(_TRL_GDPO, missing="counts_as_zero", since="0.28.0", until="1.6.0", evidence="read"),
        _TRL_RLOO,
        replace(_TRL_RLOO, estimator="rloo_normalised", whitening=_TRL_WHITENED, note="RLOOTrainer, normalize_advantages=True."),
        replace(_TRL_RLOO, reduction="row", missing="counts_as_zero", since="0.22.2", until="1.6.0", evidence="read"),
        _TRL_ASYNC,
        replace(_TRL_ASYNC, missing="counts_as_zero", since="1.0.0", until="1.6.0", evidence="read"),
    )


_VERL = AdvantageSpec(
    "verl",
    "grpo",
    scale="group_std",
    epsilon=1e-6,
    singleton="raw",
    reduction="group",
    since="0.2.0",
    evidence="called",
    note="norm_adv_by_std_in_grpo=True, the default. A group of one gets its reward over 1 + 1e-6.",
)
_VERL_WHITENED = Whitening("token", ddof=1, epsilon=1e-8, place="inside")


def _verl() -> tuple[AdvantageSpec, ...]:
    """verl: `algorithm.adv_estimator`."""
    plain = replace(_VERL, scale="none", epsilon=0.0, note="")
    vectorised = replace(_VERL, estimator="grpo_vectorized", reduction="sequential", since="0.8.0", note="")
    loose = "not zero in general: the mean of the batch moves"
    return (
        _VERL,
        replace(plain, estimator="grpo_none", since="0.4.1", note="adv_estimator=grpo, norm_adv_by_std_in_grpo=False: Dr. GRPO."),
        vectorised,
        replace(
            vectorised,
            since="0.6.1",
            until="0.8.0",
            variance_floor=1e-6,
            evidence="read",
            note="Squares were summed in one pass and the variance had a floor of 1e-6: small spreads came out too small. To rounding.",
        ),
        replace(plain, estimator="rloo", baseline="leave_one_out", leave_one_out_form="split", since="0.4.1"),
        replace(
            plain,
            estimator="rloo_vectorized",
            baseline="leave_one_out",
            leave_one_out_form="product",
            reduction="sequential",
            singleton="zero",
            since="0.6.1",
        ),
        replace(plain, estimator="reinforce_plus_plus_baseline", whitening=_VERL_WHITENED, all_equal=loose, since="0.4.1"),
        replace(
            _VERL,
            estimator="gdpo",
            several="standardise_first",
            whitening=_VERL_WHITENED,
            all_equal=loose,
            since="0.8.0",
            note="algorithm.gdpo_reward_keys and gdpo_reward_weights.",
        ),
        replace(plain, estimator="opo", baseline="length_weighted_mean", since="0.4.1"),
        replace(plain, estimator="gpg", factor="batch_over_nonzero", since="0.5.0", note="With f_norm = 1."),
        replace(
            _VERL,
            estimator="grpo_passk",
            baseline="second_best",
            singleton="refused",
            since="0.4.1",
            note="One rollout of a group gets an advantage; of equal bests none does.",
        ),
    )


def _others() -> tuple[AdvantageSpec, ...]:
    """Frameworks whose source was read."""
    openrlhf = AdvantageSpec("openrlhf", "dr_grpo", since="0.11.2")
    swift = AdvantageSpec("ms-swift", "grpo", scale="group_std", epsilon=1e-4, missing="counts_as_zero", singleton="zero", since="4.6.0")
    slime = AdvantageSpec("slime", "grpo", scale="group_std", scale_of="advantage", epsilon=1e-6, note="Also gspo and cispo.")
    nemo = AdvantageSpec(
        "nemo-rl",
        "grpo",
        baseline="leave_one_out",
        scale="leave_one_out_std",
        epsilon=1e-6,
        singleton="zero",
        note="Groups of two are not divided. The variance comes from squares: where all are nearly equal, rounding decides.",
    )
    return (
        replace(openrlhf, estimator="group_norm", scale="group_std", epsilon=1e-9),
        openrlhf,
        replace(openrlhf, estimator="rloo", baseline="leave_one_out"),
        replace(
            openrlhf,
            estimator="reinforce_baseline",
            whitening=Whitening("token", ddof=0, epsilon=1e-8, place="floor"),
            all_equal="not zero in general: the mean of the batch moves",
            note="With gamma = 1 and no KL term in the reward.",
        ),
        AdvantageSpec("prime-rl", "grpo", singleton="zero", note="Groups of equal rewards are filtered out before training."),
        AdvantageSpec("prime-rl", "max_rl", scale="group_mean", singleton="zero", note="0 where the group's mean is 0 or less."),
        slime,
        replace(slime, estimator="grpo_none", scale="none", epsilon=0.0, note="--disable-grpo-std-normalization."),
        nemo,
        swift,
        replace(swift, estimator="grpo_batch", scale="batch_std", note="scale_rewards batch."),
        replace(swift, estimator="grpo_none", scale="none", epsilon=0.0, note="scale_rewards none."),
        replace(swift, estimator="rloo", baseline="leave_one_out", leave_one_out_form="split", scale="none", epsilon=0.0),
        replace(swift, estimator="reinforce_plus_plus", scale="batch_std", scale_of="advantage"),
        AdvantageSpec(
            "simple_grpo",
            "grpo",
            scale="group_std",
            epsilon=1e-4,
            all_equal="dropped: max - min below 1e-4",
            note="By the notes of others.",
        ),
        AdvantageSpec("skyrl", "grpo", scale="group_std", epsilon=1e-6, singleton="raw", reduction="group", since="0.3.0"),
        AdvantageSpec("skyrl", "grpo_none", singleton="raw", since="0.3.0", note="grpo_norm_by_std: false."),
        AdvantageSpec("skyrl", "rloo", baseline="leave_one_out", leave_one_out_form="scaled", singleton="zero", since="0.3.0"),
        AdvantageSpec(
            "art",
            "grpo",
            scale="group_std",
            ddof=0,
            epsilon=1e-6,
            reduction="sequential",
            singleton="zero",
            all_equal="dropped where it is exactly 0",
            since="0.5.18",
            note="scale_rewards=True, the default; in Python's own floats, so give float64.",
        ),
    )


PRESETS: tuple[AdvantageSpec, ...] = (*_trl(), *_verl(), *_others())


def preset(framework: str, *, estimator: str = "grpo", version: str | None = None) -> AdvantageSpec:
    """Return what a framework computes.

    Args:
        framework: such as "trl" or "verl", capitals or not.
        estimator: its name there; `PRESETS` lists them.
        version: of the framework, such as "1.16.0"; the newest that we know by default.

    Returns:
        The spec.

    Raises:
        InvalidArgumentError: no such framework, estimator or version; the message lists what there is.

    Example:
        >>> preset("trl").epsilon, preset("trl", estimator="async_grpo").ddof
        (0.0001, 0)

    Source: docs/advantages.md.
    """
    mine = [spec for spec in PRESETS if spec.framework == framework.lower()]
    if not mine:
        known = ", ".join(sorted({spec.framework for spec in PRESETS}))
        raise InvalidArgumentError(f"no presets for {framework!r}: choose one of {known}, or make an AdvantageSpec")
    named = [spec for spec in mine if spec.estimator == estimator]
    if not named:
        known = ", ".join(dict.fromkeys(spec.estimator for spec in mine))
        raise InvalidArgumentError(f"no preset of {framework} is called {estimator!r}: choose one of {known}")
    if version is None:
        return named[0]
    wanted = _numbers(version)
    for spec in named:
        if _numbers(spec.since) <= wanted and (not spec.until or wanted < _numbers(spec.until)):
            return spec
    known = ", ".join(f"{spec.since} to {spec.until or 'now'}" for spec in named)
    raise InvalidArgumentError(f"{framework} {version} was not looked at for {estimator!r}: known are {known}")


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "1.16.0.dev0" is (1, 16, 0)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
