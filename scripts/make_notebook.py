"""Run docs/first-look.ipynb and keep what its cells print and show, without Jupyter.

    python scripts/make_notebook.py

The cells are edited in the notebook; a test runs them and holds what they print against what is
kept.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "first-look.ipynb"
SHOWN = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def executed(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each cell of code, in order, with what it puts out, as a notebook keeps it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        printed, value = run("".join(cell["source"]), names, f"cell {number}")
        outputs: list[dict[str, Any]] = []
        if printed:
            outputs.append(
                {
                    "output_type": "stream",
                    "name": "stdout",
                    "text": printed.splitlines(keepends=True),
                }
            )
        if value is not None:
            shown = {
                kind: getattr(value, name)() for kind, name in SHOWN.items() if hasattr(value, name)
            }
            data = {
                kind: text.splitlines(keepends=True)
                for kind, text in ({"text/plain": repr(value)} | shown).items()
            }
            outputs.append(
                {
                    "output_type": "execute_result",
                    "execution_count": number,
                    "metadata": {},
                    "data": data,
                }
            )
        cell["execution_count"] = number
        yield cell, outputs


def run(source: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    """Run a cell as a notebook does; return what it prints, and the value of an expression at
    its end.
    """
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as printed:
        exec(compile(tree, where, "exec"), names)
        value = (
            None
            if last is None
            else eval(compile(ast.Expression(last.value), where, "eval"), names)
        )
        printed.flush()
        return printed.buffer.getvalue().decode(), value  # type: ignore[attr-defined] # of the BytesIO above


def main() -> None:
    """Write the notebook anew."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell, outputs in executed(notebook):
        cell["outputs"] = outputs
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{NOTEBOOK.name}: {NOTEBOOK.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
