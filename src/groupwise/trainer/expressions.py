"""Arithmetic in a text, worked out without being run: a walk over its syntax tree that knows whole numbers and + - * / ** alone.

Length, depth, numbers and powers are limited, so that no text takes long; what lies outside has no value.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

_LONGEST = 100  # characters
_DEEPEST = 20  # operations inside one another
_LARGEST = 10**12  # of numerator and denominator, at every step
_HIGHEST_POWER = 8
_ALLOWED = re.compile(r"[0-9+\-*/() ]+")  # no name, no attribute, no call with an argument, no underscore can be spelt with these
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda first, second: first + second,
    ast.Sub: lambda first, second: first - second,
    ast.Mult: lambda first, second: first * second,
    ast.Div: lambda first, second: first / second,
}


class _Refused(Exception):  # noqa: N818 - no error: the text has no value
    """The text lies outside of what is worked out."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that has a value."""

    value: Fraction
    numbers: tuple[int, ...]  # as they are written, from left to right


def read_expression(text: str) -> Expression | None:
    """Return what a text works out to; None where it is no expression, or one outside the limits."""
    text = text.strip().replace("×", "*").replace("÷", "/").replace("−", "-")
    if len(text) > _LONGEST or not _ALLOWED.fullmatch(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text, mode="eval")
        numbers: list[int] = []
        return Expression(_value(tree.body, numbers, _DEEPEST), tuple(numbers))
    except (_Refused, SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return None


def _value(node: ast.expr, numbers: list[int], depth: int) -> Fraction:
    """Return the value of a node and append its numbers."""
    if not depth:
        raise _Refused
    if isinstance(node, ast.Constant) and type(node.value) is int:
        numbers.append(node.value)
        return _limited(Fraction(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand, numbers, depth - 1)
        return -inner if isinstance(node.op, ast.USub) else inner
    if not isinstance(node, ast.BinOp):
        raise _Refused
    first, second = _value(node.left, numbers, depth - 1), _value(node.right, numbers, depth - 1)
    if isinstance(node.op, ast.Pow):
        return _limited(_power(first, second))
    if type(node.op) not in _OPERATIONS:
        raise _Refused
    return _limited(_OPERATIONS[type(node.op)](first, second))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return a small whole power."""
    if exponent.denominator != 1 or not 0 <= exponent <= _HIGHEST_POWER:
        raise _Refused
    return Fraction(base ** int(exponent))


def _limited(value: Fraction) -> Fraction:
    """Refuse a value that grows too large."""
    if max(abs(value.numerator), value.denominator) > _LARGEST:
        raise _Refused
    return value
