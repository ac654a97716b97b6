"""A process of its own that asks math-verify: JSON lines in, JSON lines out; `math_judge` starts it by `worker`.

Only LaTeX is parsed: the other parser of math-verify evaluates text as Python. It imports nothing of this package.
"""

from __future__ import annotations

import json
import sys

_MEMORY = 4 << 30


def same_mathematics(gold: str, found: str) -> bool | None:
    """Return whether two LaTeX answers mean the same; None where either cannot be read."""
    from math_verify import LatexExtractionConfig, parse, verify

    answers = [parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None) for text in (gold, found)]
    if not answers[0]:
        return None
    return bool(answers[1]) and bool(verify(answers[0], answers[1], timeout_seconds=None))


def _limit_memory() -> None:
    """Keep a hostile answer from filling the machine."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, ValueError, OSError):
        return


def main() -> None:
    """Answer one question a line until the input ends."""
    _limit_memory()
    same_mathematics("1", "1")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            same = same_mathematics(question["gold"], question["found"])
        except Exception:  # noqa: BLE001 - whatever the library raises, the answer is that it could not decide
            same = None
        print(json.dumps({"same": same}), flush=True)


if __name__ == "__main__":
    main()
