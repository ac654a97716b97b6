"""The arguments and options that several commands share, as Typer reads them.

Only typer is imported: this loads before a command is chosen. Nothing is parsed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A log file, a run folder or a saved record.", show_default=False)]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Log files, run folders or saved records.", show_default=False)]
Metric = Annotated[str, typer.Option("--metric", "-m", metavar="NAME", help="The log's own key or a canonical quantity.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting that the log does not hold, as group_size=8. Repeatable.", show_default=False
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A file with settings: JSON, YAML or a README.", show_default=False)
]
Column = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="NAME=COLUMN", help="What a column of a table is, as reward=score. Repeatable.", show_default=False),
]
Until = Annotated[float | None, typer.Option("--until", metavar="STEP", help="Use nothing after this step.", show_default=False)]
At = Annotated[
    str | None, typer.Option("--at", metavar="S1,S2", help="Steps to forecast; a few beyond the last where not given.", show_default=False)
]
Evidence = Annotated[
    bool, typer.Option("--evidence", help="Also, in JSON too, the numbers beside the checks, and what to log for those not measured.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")]
FitLevel = Annotated[float, typer.Option("--level", metavar="SHARE", help="Coverage of the intervals, between 0 and 1.")]
BandLevel = Annotated[float, typer.Option("--level", metavar="SHARE", help="Coverage of the bands, between 0 and 1.")]

Force = Annotated[bool, typer.Option("--force", help="Replace a file of components that is there already.")]
Level = Annotated[
    float | None,
    typer.Option("--level", metavar="SHARE", help="Coverage of the intervals; that of saved components, else 0.95.", show_default=False),
]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", metavar="G", help="Size in use; the run's own where known.", show_default=False)
]
Groups = Annotated[
    int | None, typer.Option("--groups", metavar="P", help="How many groups to take scores of; 64 where not given.", show_default=False)
]
Steps = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="First and last step whose completions are used.", show_default=False)
]
Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        metavar="NAME",
        help="Of the token losses: sum, sequence_mean or batch_token_mean; sum where not given.",
        show_default=False,
    ),
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", metavar="T", help="Of the sampling; the run's own where not given.", show_default=False)
]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layers",
        metavar="PATTERN",
        help="Only parameters whose whole names match this glob, as '*q_proj*'. Repeatable.",
        show_default=False,
    ),
]
SketchWidth = Annotated[
    int | None,
    typer.Option(
        "--sketch-width",
        metavar="K",
        help="Sketch the scores to K numbers; exact inner products where not given and memory allows.",
        show_default=False,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-completion-length",
        metavar="L",
        help="Tokens at which completions were cut off; the run's own where known, else the longest of its log.",
        show_default=False,
    ),
]
ZeroMean = Annotated[
    bool | None,
    typer.Option(
        "--zero-mean/--any-mean",
        help="Whether scores average to zero within a prompt: whole sums at the temperature of sampling do.",
        show_default=False,
    ),
]
Source = Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run, an .npz with scores, or saved components.", show_default=False)]

# Of `groupwise stability`; each None where not given.
PerhapsRun = Annotated[Path | None, typer.Argument(metavar="RUN", help="A log, a run folder or a saved record.", show_default=False)]
LearningRate = Annotated[float | None, typer.Option("--learning-rate", metavar="E", help="Per update.", show_default=False)]
Momentum = Annotated[float | None, typer.Option("--momentum", metavar="M", help="Of SGD; beta1 of Adam.", show_default=False)]
Stiffness = Annotated[
    str | None, typer.Option("--stiffness", metavar="K1,K2", help="Of one mode or several; not with a run.", show_default=False)
]
RefreshInterval = Annotated[
    int | None,
    typer.Option("--refresh-interval", metavar="R", help="Updates between two generations, or a fixed lag.", show_default=False),
]
LagKind = Annotated[str | None, typer.Option("--lag-kind", metavar="KIND", help="none, fixed, refresh or async.", show_default=False)]
LagShares = Annotated[
    str | None,
    typer.Option("--lag-shares", metavar="S0,S1", help="Instead: shares of lags of 0, 1, 2, ... updates.", show_default=False),
]
Trainer = Annotated[
    str | None,
    typer.Option("--trainer", metavar="NAME", help="Instead: trl, verl, ... with its own settings as --set.", show_default=False),
]
Optimizer = Annotated[str | None, typer.Option("--optimizer", metavar="NAME", help="sgd or adam; sgd.", show_default=False)]
SecondMoment = Annotated[float | None, typer.Option("--second-moment", metavar="V", help="Of Adam, along the mode.", show_default=False)]
ImportanceRatio = Annotated[
    str | None, typer.Option("--importance-ratio", metavar="KIND", help="none, exact or clipped; none.", show_default=False)
]
KlIn = Annotated[str | None, typer.Option("--kl-in", metavar="PLACE", help="Of the KL term: none, reward or loss.", show_default=False)]
StaleShare = Annotated[
    float | None, typer.Option("--stale-share", metavar="S", help="Of the force; 1 but for a KL term in the loss.", show_default=False)
]
Horizon = Annotated[
    float | None, typer.Option("--horizon", metavar="T", help="Rule of 2607.01083: updates of the run.", show_default=False)
]
UpdateNorm = Annotated[
    float | None, typer.Option("--update-norm", metavar="G", help="Its norm of an update over the learning rate.", show_default=False)
]
BatchRadius = Annotated[
    float | None, typer.Option("--batch-radius", metavar="D", help="Its distance a batch stays useful over.", show_default=False)
]
CriticalRadius = Annotated[
    float | None, typer.Option("--critical-radius", metavar="D", help="Its distance to collapse.", show_default=False)
]
MapOutput = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The map, as .html or .svg.", show_default=False)]
ForceLaw = Annotated[
    str | None, typer.Option("--law", metavar="NAME", help="Read the force off this law, not the best.", show_default=False)
]

# Of `groupwise compare`.
ComparedRuns = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Runs, each by itself; A1 A2 vs B1 B2 puts groups of runs apart.", show_default=False),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="KEY", help="Group runs by a setting, or by what their names say of it.", show_default=False),
]
Baseline = Annotated[
    str | None, typer.Option("--baseline", metavar="VALUE", help="Of --by, to compare with; the smallest.", show_default=False)
]
PairBy = Annotated[str | None, typer.Option("--pair-by", metavar="KEY", help="Pair runs by a setting, as seed.", show_default=False)]
Late = Annotated[float, typer.Option("--late", metavar="SHARE", help="Of the steps, at their end, whose mean is compared.")]
Reach = Annotated[
    float | None, typer.Option("--reach", metavar="LEVEL", help="Speed is the time to it; half of the way.", show_default=False)
]
Effect = Annotated[
    float | None,
    typer.Option("--effect", metavar="D", help="The smallest difference that matters; the one found.", show_default=False),
]
SeedDeviation = Annotated[
    float | None,
    typer.Option("--seed-deviation", metavar="S", help="Spread of seeds, where it is known beforehand.", show_default=False),
]
Figure = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="A figure of two groups, as .svg.", show_default=False)]
RolloutCost = Annotated[
    float | None,
    typer.Option(
        "--rollout-cost", metavar="C", help="Of one rollout; 1 for rollouts, else from the run where it tells.", show_default=False
    ),
]
PromptPool = Annotated[
    int | None, typer.Option("--prompt-pool", metavar="P", help="Different prompts there are, where few.", show_default=False)
]
Curvature = Annotated[
    str | None, typer.Option("--curvature", metavar="K|FILE", help="At the optimum: one for all, or an .npz.", show_default=False)
]
StepConstant = Annotated[
    float | None, typer.Option("--step-constant", metavar="B", help="Of steps B/i; 1/curvature where not given.", show_default=False)
]
ConstantStep = Annotated[float | None, typer.Option("--learning-rate", metavar="E", help="Of constant steps, instead.", show_default=False)]
UpdatesOfGap = Annotated[float | None, typer.Option("--updates", metavar="N", help="After which the gap is wanted.", show_default=False)]
