"""The diagnosis of real public runs whose end is known: healthy, collapsed, hacked.

    python experiments/diagnosis/real.py FOLDER

FOLDER holds the logs, which state no licence and are not part of the project; the table is real.csv. "onset" is the step of the label.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from groupwise.diagnostics.former import Evidence, diagnose
from groupwise.diagnostics.former.hacking import coupling_of, pair_of
from groupwise.readers import open_run
from groupwise.record.run import RunRecord

HERE = Path(__file__).parent
SWEEP, SHIBUKI, HACKED = "sweeps/qwen25_7b_rho_sweep", "sweeps/cs336_shibuki", "other/tinker_reward_hacking"
LABELS: tuple[tuple[str, str, int | None], ...] = (
    (f"{SWEEP}/rho0.10_seed42.log", "healthy", None),
    (f"{SWEEP}/rho0.10_seed43.log", "collapsed", 110),
    (f"{SWEEP}/rho0.30_seed42.log", "collapsed", 25),
    (f"{SWEEP}/rho0.50_seed42.log", "healthy", None),
    (f"{SWEEP}/rho0.50_seed44.log", "healthy", None),
    (f"{SWEEP}/rho0.70_seed42.log", "healthy", None),
    (f"{SWEEP}/rho1.00_seed42.log", "collapsed", 150),
    (f"{SWEEP}/rho1.50_seed42.log", "declining", None),
    (f"{SWEEP}/rho1.50_seed43.log", "declining", None),
    (f"{SWEEP}/rho2.00_seed42.log", "healthy", None),
    (f"{SWEEP}/rho3.00_seed42.log", "healthy", None),
    (f"{SWEEP}/rho5.00_seed42.log", "declining", None),
    (f"{SWEEP}/rho5.00_seed44.log", "healthy", None),
    ("trl/qwen25_7b_exp2_adabalance_seed42.log", "collapsed", 80),
    ("trl/qwen25_7b_exp2_best_static_rho3.0_seed42.log", "healthy", None),
    ("trl/qwen25_7b_exp2_vanilla_rho1.0_seed42.log", "healthy", None),
    ("trl/qwen35_9b_dapo_rho1.0_seed42.step_logs.json", "healthy", None),
    ("trl/qwen35_9b_rho0.10_seed42.step_logs.json", "healthy", None),
    ("trl/qwen35_9b_rho0.70_seed42.step_logs.json", "healthy", None),
    ("trl/qwen35_9b_rho0.70_seed44.step_logs.json", "collapsed", 160),
    ("trl/qwen35_9b_rho1.00_seed42.step_logs.json", "healthy", None),
    ("trl/qwen35_9b_rho3.00_seed42.step_logs.json", "healthy", None),
    ("trl/imjonezz_llama31_8b_gsm8k_G6.trainer_state.json", "healthy", None),
    ("trl/juncylu_qwen25vl3b_dapo_120531.run_terminal.md", "collapsed", 20),
    (f"{SHIBUKI}/grpo_baselines/reinforce_with_baseline.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_length_normalization/batch_token_mean.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_off_policy_sweep/broad_e2_tb128.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_off_policy_sweep/broad_e2_tb64.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_off_policy_sweep/broad_e4_tb128.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_off_policy_sweep/broad_e8_tb256.metrics.jsonl", "collapsed", 22),
    (f"{SHIBUKI}/grpo_off_policy_sweep/focused_e2_tb128.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_prompt_ablation/question_only.metrics.jsonl", "healthy", None),
    (f"{SHIBUKI}/grpo_train_loop/grpo_on_policy_lr1e-5.metrics.jsonl", "healthy", None),
    ("verl/leonopus_qwen3_4b_gsm8k_G4_full125.log", "healthy", None),
    ("trl/wordle_qwen05b_4090_ckpt400.trainer_state.json", "failed", None),
    (f"{HACKED}/rl-leetcode__llama-3.2-1b-medium.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__llama-3.2-3b__Easy-g-llmjudge-long.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__llama-3.2-3b__Medium-g-llmjudge-long.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__meta-llama__Llama-3.2-3B__100f_g__Easy.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__meta-llama__Llama-3.2-3B__100f_g__Medium.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__meta-llama__Llama-3.2-3B__f_g__Easy.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__meta-llama__Llama-3.2-3B__f_g__Medium.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__llama-3.2-1b__Easy.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__llama-3.2-1b__Hard.metrics.jsonl", "hacked", None),
    (f"{HACKED}/rl-leetcode__meta-llama__Llama-3.2-3B__g__Easy.metrics.jsonl", "hacked", None),
)


def coupling(record: RunRecord) -> str:
    """Held-out gain over training gain from the first sixth to the last, where both are logged."""
    pair = pair_of(Evidence(record))
    few = 0 if pair is None else max(2, len(pair.step_M) // 6)
    found = None if pair is None else coupling_of(pair, slice(0, few), slice(len(pair.step_M) - few, None))
    return "" if found is None else f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def main() -> None:
    """Diagnose each and write the table."""
    if len(sys.argv) < 2:
        print("give the folder with the logs; nothing was run")
        return
    home = Path(sys.argv[1])
    with (HERE / "real.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["run", "label", "onset", "verdict", "worst", "collapse_since", "error_share", "critical", "coupling"])
        for name, label, onset in LABELS:
            found = diagnose(record := open_run(home / name))
            fell = next((f for f in found.findings if f.check == "collapse" and f.severity == "critical"), None)
            since = None if fell is None else fell.since_step
            error = "" if onset is None or since is None else f"{(since - onset) / int(record.steps['step'][-1]):.3f}"
            critical = " ".join(f.check for f in found.findings if f.severity == "critical")
            table.writerow([Path(name).name, label, onset, found.verdict, found.worst or "", since, error, critical, coupling(record)])


if __name__ == "__main__":
    main()
