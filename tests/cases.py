"""Tables of cases: one test runs all rows of a table, and names each that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

Test = Callable[..., None]
LONGEST = 300  # characters of a case in a message


def each_case(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test on each case, as `pytest.mark.parametrize` does, but as one test: thousands of
    small ones take longer to be announced than to run. Every case runs, whichever fail, with a
    folder, patches and output of its own. A test of which some cases skip needs a test a case.
    """
    arguments = (names,) if isinstance(names, str) else names
    rows = [(case,) if isinstance(names, str) else tuple(case) for case in cases]
    if any(len(row) != len(arguments) for row in rows):
        raise ValueError(f"expected cases of {len(arguments)} values: {arguments}")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def of_all(*own: Any, **fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(rows):
                case = dict(zip(arguments, row, strict=True))
                try:
                    with apart(fixtures, number) as others:
                        test(*own, **case, **others)
                except (Exception, pytest.fail.Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - every case runs
                    error.add_note(f"case {number}: {case!r}"[:LONGEST])
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} cases fail", failures)

        signature = inspect.signature(test)
        kept = [entry for name, entry in signature.parameters.items() if name not in arguments]
        vars(of_all)["__signature__"] = signature.replace(parameters=kept)
        return of_all

    return decorate


@contextmanager
def apart(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures of a test as they are for a case: what earlier cases left is not there."""
    with ExitStack() as stack:
        case = dict(fixtures)
        if "tmp_path" in fixtures:
            case["tmp_path"] = fixtures["tmp_path"] / f"case-{number}"
            case["tmp_path"].mkdir()
        if "monkeypatch" in fixtures:
            case["monkeypatch"] = stack.enter_context(fixtures["monkeypatch"].context())
        for name in {"capsys", "capfd"} & set(fixtures):
            fixtures[name].readouterr()
        yield case
