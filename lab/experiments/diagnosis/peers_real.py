"""The labelled public runs given to rlwatch, rldoctor and post-training-toolkit, beside our
judgement of them: one table.

    python lab/experiments/diagnosis/peers_real.py FOLDER --rlwatch PYTHON --rldoctor PYTHON
    --toolkit PYTHON CHECKOUT

FOLDER holds the logs of labels.py; PYTHON is that of an environment with the tool; how each is fed
stands at the head of peers.py. Critical is a tool's gravest severity (ours: failing, failed), any
its next as well (ours: warning). A cause counts as named where any alarm of a tool, of whatever
severity above a note, is about what the label is about (ours: a cause at any certainty). Seconds
and words are medians: rldoctor's words are those of its page in the terminal, the others' those of
their messages where they have any. rldoctor is also given the files as they are, where it knows
their endings. Writes the table `peers_real`.
"""

import json
import statistics
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from labels import FAILED, HEALTHY, JudgedRun, data_folder, families, judged_runs, opened
from peers import Answer, RuleSeverities, log_of, ours, results_of, tools_of

# What the rules of the other tools are about, in the families of labels.py; a rule that is not here
# is about none of them.
ABOUT = {
    "entropy_collapse": {"concentration"},
    "mode_collapse_entropy": {"concentration"},
    "grpo_entropy_collapse": {"concentration"},
    "grpo_entropy_drop": {"concentration"},
    "reward_hacking": {"hacking"},
    "reward_hacking_suspected": {"hacking"},
    "reward_model_imbalance": {"hacking"},
    "kl_explosion": {"instability"},
    "kl_drift": {"instability"},
    "kl_instability": {"instability"},
    "instability_hotspot": {"instability"},
    "clip_saturation": {"instability"},
    "gradient_norm_spike": {"instability", "numerics"},
    "gradient_explosion": {"instability", "numerics"},
    "gradient_instability": {"instability"},
    "kl_volatility": {"instability"},
    "kl_above_target": {"instability"},
    "grpo_kl_divergence": {"instability"},
    "yaml_kl_divergence_high": {"instability"},
    "grpo_loss_divergence": {"instability"},
    "gradient_pathology": {"instability", "numerics"},
    "loss_nan": {"numerics"},
    "advantage_collapse": {"groups"},
    "grpo_reward_collapse": {"groups"},
    "yaml_grpo_group_reward_collapse": {"groups"},
    "gradient_vanishing": {"groups"},
    "length_pathology": {"length", "truncation"},
    "length_collapse": {"length"},
    "mode_collapse_length_variance": {"length"},
    "grpo_length_drift": {"length"},
    "grpo_reward_length_correlation": {"length", "hacking"},
    "response_truncation_rate_high": {"truncation"},
    "reward_composition": {"format"},
}
NATIVE = (".jsonl", ".json", ".csv")  # the endings of files that rldoctor opens
HEADER = [
    *("tool", "healthy", "critical", "any", "failed", "found_critical", "found_any"),
    *("flat", "flat_critical", "flat_any", "caused", "named", "seconds", "words", "on_healthy"),
]


def our_answer(run: JudgedRun) -> Answer:
    """Our judgement as the others' answers are kept."""
    return Answer(ours(run.judgement), run.seconds, run.words)


def about(severities: RuleSeverities) -> frozenset[str]:
    """What the alarms of an answer are about."""
    graver = [name for name, severity in severities.items() if severity != "info"]
    return frozenset().union(*(ABOUT.get(name) or families(name) for name in graver))


def line_of(tool: str, runs: Sequence[JudgedRun], answers: Sequence[Answer]) -> dict[str, object]:
    """A row of the table."""

    def alarms(labels: Sequence[str]) -> tuple[int, int, int]:
        graver = [
            [severity for severity in answer.severities.values() if severity != "info"]
            for run, answer in zip(runs, answers, strict=True)
            if run.label.label in labels
        ]
        return (
            len(graver),
            sum("critical" in severities for severities in graver),
            sum(map(bool, graver)),
        )

    caused = [
        (run, answer)
        for run, answer in zip(runs, answers, strict=True)
        if run.label.label in FAILED and run.label.causes
    ]
    named = sum(bool(about(answer.severities) & run.label.causes) for run, answer in caused)
    cells = (
        tool,
        *alarms(HEALTHY),
        *alarms((*FAILED, "zero reward")),
        *alarms(("flat", "declining")),
        len(caused),
        named,
    )
    seconds = statistics.median(answer.seconds for answer in answers)
    words = [answer.words for answer in answers if answer.words]
    healthy = [
        answer.severities
        for run, answer in zip(runs, answers, strict=True)
        if run.label.label in HEALTHY
    ]
    fired = Counter(
        name
        for severities in healthy
        for name, severity in severities.items()
        if severity != "info"
    )
    rules = "; ".join(f"{name}: {count}" for name, count in fired.most_common())
    return dict(
        zip(
            HEADER,
            (
                *cells,
                f"{seconds:.2g}" if seconds else "",
                f"{statistics.median(words or [0]):g}",
                rules,
            ),
            strict=True,
        )
    )


def as_they_are(
    home: Path, python: str, runs: Sequence[JudgedRun]
) -> tuple[list[JudgedRun], list[Answer]]:
    """What the command of rldoctor says of the files themselves: of those that it opens and
    finds a reward in.
    """
    kept, answers = [], []
    for run in runs:
        file = home / run.label.file
        if not file.name.endswith(NATIVE) or not file.is_file():
            continue
        command = [python, "-m", "rl_doctor.cli", "diagnose", str(file), "--format"]
        done = subprocess.run([*command, "json"], capture_output=True, text=True, check=False)
        document = json.loads(done.stdout) if not done.returncode else {"run": {"fields": []}}
        if "reward_mean" in document["run"]["fields"]:
            text = subprocess.run(
                [*command, "terminal"], capture_output=True, text=True, check=False
            ).stdout
            kept.append(run)
            answers.append(
                Answer(
                    _reported_of(document),
                    0.0,
                    sum(any(map(str.isalpha, word)) for word in text.split()),
                )
            )
    return kept, answers


def _reported_of(report: Mapping[str, object]) -> RuleSeverities:
    """The alarms of rldoctor's JSON."""
    grave = {"CRITICAL": "critical", "WARNING": "warning", "INFO": "info"}
    findings = report["findings"]
    assert isinstance(findings, list)
    return {
        finding["detector"]: grave[finding["severity"]]
        for finding in findings
        if finding["severity"] in grave
    }


def main() -> None:
    """Ask all tools of all labelled runs."""
    given, tools = tools_of(__doc__, "folder")
    home = data_folder(given.folder)
    if not home.is_dir():
        print(f"no logs at {home}; nothing was run")
        return
    runs = list(judged_runs(home))
    logs = [log_of(opened(home, run.label.file)) for run in runs]
    lines = [line_of("groupwise", runs, [our_answer(run) for run in runs])]
    lines += [line_of(tool, runs, answers) for tool, answers in tools.asked(logs).items()]
    if tools.rldoctor:
        kept, answers = as_they_are(home, tools.rldoctor, runs)
        lines.append(line_of("rldoctor, files as they are", kept, answers))
        lines.append(line_of("groupwise, the same files", kept, [our_answer(run) for run in kept]))
    results_of(__file__).write("peers_real", lines)
    for line in lines:
        print(line)


if __name__ == "__main__":
    main()
