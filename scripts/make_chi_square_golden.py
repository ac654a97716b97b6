"""Write lab/tests/golden/chi_square.json: tail probabilities of weighted sums of chi-squares in
40-digit arithmetic.

    python scripts/make_chi_square_golden.py        (needs mpmath; some minutes)

No line is shared with `groupwise.theory`, nor is any method: equal weights by the incomplete gamma
function or Poisson's mixture, pairs by a polar integral over the exponential, even degrees by
partial fractions, a law with a tail below what the last method leaves out by a trapezoidal sum on
the vertical line through its saddle point, good to 25 digits of the smaller tail, everything else
by Davies's (1973) sum on the imaginary axis, whose step is so small that what it aliases is below
1e-25 (Chernoff) and whose last term is below 1e-28 (1e-17 where few degrees of freedom make it fall
slowly: those values are good to 1e-14, the others to 1e-24). It imports nothing of the package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpmath import mp, mpc, mpf

mp.dps = 40
TARGET = Path(__file__).resolve().parent.parent / "lab" / "tests" / "golden" / "chi_square.json"
LogMgf = Callable[[Any], Any]


def log_mgf(weight: Sequence[Any], degrees: Sequence[Any], noncentrality: Sequence[Any]) -> LogMgf:
    """Return log E exp(s Q)."""

    def value(s: Any) -> Any:
        total = mpf(0)
        for w, d, l in zip(weight, degrees, noncentrality, strict=True):
            factor = 1 - 2 * s * w
            total += -mpf(d) / 2 * mp.log(factor) + (l * w * s / factor if l else 0)
        return total

    return value


def harmonic_log_mgf(count: int) -> LogMgf:
    """Return log E exp(s Q) for weights 1/k, k = 1 ..

    count, one degree each, by gamma functions: prod (1 - z/k) over k.
    """
    return lambda s: (
        -(mp.loggamma(count + 1 - 2 * s) - mp.loggamma(1 - 2 * s) - mp.loggamma(count + 1)) / 2
    )


def chernoff_reach(logs: LogMgf, edge: Any, sign: int, mean: Any) -> Any:
    """Return a distance beyond the mean that Q exceeds, on one side, with a probability below
    1e-26.
    """
    s = sign * (edge * mpf("0.9") if edge is not None else mpf(50))
    return max(mpf(0), (mp.re(logs(mpc(s, 0))) + 60) / abs(s) - sign * mean)


def davies(
    logs: LogMgf, points: Sequence[Any], *, mean: Any, edges: tuple[Any, Any], last: str = "1e-28"
) -> list[Any]:
    """Return P(Q > x) = 1/2 + sum Im[phi(u) exp(-iux)] / (pi (k + 1/2)), u = (k + 1/2) step."""
    reach = max(
        chernoff_reach(logs, edges[1], 1, mean), chernoff_reach(logs, edges[0], -1, mean)
    ) + max(abs(x - mean) for x in points)
    step = 2 * mp.pi / (2 * reach)
    totals = [mpf(1) / 2 for _ in points]
    for k in range(400_000):
        u = (k + mpf(1) / 2) * step
        phi = mp.exp(logs(mpc(0, u)))
        for place, x in enumerate(points):
            totals[place] += mp.im(phi * mp.expj(-u * x)) / (mp.pi * (k + mpf(1) / 2))
        if abs(phi) < mpf(last):
            return totals
    raise RuntimeError("the characteristic function falls too slowly for a sum")


def edges_of(weight: Sequence[Any]) -> tuple[Any, Any]:
    """Return how far the moment generating function reaches to the left and to the right, None
    where for ever.
    """
    low, high = min(weight), max(weight)
    return (-1 / (2 * low) if low < 0 else None, 1 / (2 * high) if high > 0 else None)


def by_davies(
    weight: Sequence[float],
    degrees: Sequence[float],
    noncentrality: Sequence[float],
    points: Sequence[float],
) -> list[Any]:
    """Return the tails of a general mixture."""
    w, d, l = ([mpf(v) for v in values] for values in (weight, degrees, noncentrality))
    mean = sum(a * (b + c) for a, b, c in zip(w, d, l, strict=True))
    last = "1e-17" if sum(d) < 20 else "1e-28"
    return davies(
        log_mgf(w, d, l), [mpf(x) for x in points], mean=mean, edges=edges_of(w), last=last
    )


def by_shift(
    weight: Sequence[float],
    degrees: Sequence[float],
    noncentrality: Sequence[float],
    points: Sequence[float],
) -> list[Any]:
    """Return the tails by the sum on Re s = c: aliases are exp(-cL) and exp(-(edge - c)L) beside
    a tail, with L = 2 pi over the step.
    """
    d, l = ([mpf(v) for v in values] for values in (degrees, noncentrality))
    mean = sum(mpf(a) * (b + c) for a, b, c in zip(weight, d, l, strict=True))

    def upper(w: Sequence[Any], q: Any) -> Any:
        logs, edge = log_mgf(w, d, l), 1 / (2 * max(w)) if max(w) > 0 else None
        low, high = mpf(0), edge if edge is not None else mpf(10) ** 4
        for _ in range(40):
            c = (low + high) / 2
            slope = (
                sum(
                    a * b / (1 - 2 * c * a) + e * a / (1 - 2 * c * a) ** 2
                    for a, b, e in zip(w, d, l, strict=True)
                )
                - q
                - 1 / c
            )
            low, high = (low, c) if slope > 0 else (c, high)
        reach = max(200 / (c if edge is None else min(c, edge - c)), 2 * abs(q))
        start, step, total = logs(c) - c * q, 2 * mp.pi / reach, mpf(0)
        for k in range(400_000):
            s = mpc(c, (k + mpf(1) / 2) * step)
            term = mp.exp(logs(s) - s * q - start) / s
            total += mp.re(term)
            if abs(term) < mpf("1e-32"):
                return total * step / mp.pi * mp.exp(start)
        raise RuntimeError("the characteristic function falls too slowly for a sum")

    sign = [mpf(v) for v in weight]
    return [
        upper(sign, mpf(x)) if x > mean else 1 - upper([-v for v in sign], -mpf(x)) for x in points
    ]


def one_weight(degrees: float, noncentrality: float, points: Sequence[float]) -> list[Any]:
    """Return the tails of one chi-square: Poisson's mixture of incomplete gamma functions."""
    tails = []
    for x in map(mpf, points):
        half, total = mpf(noncentrality) / 2, mpf(0)
        for j in range(2000 if noncentrality else 1):
            weight = mp.exp(-half) * half**j / mp.factorial(j) if noncentrality else mpf(1)
            total += weight * mp.gammainc(mpf(degrees) / 2 + j, x / 2, mp.inf, regularized=True)
            if j > half and weight < mpf("1e-40"):
                break
        tails.append(total)
    return tails


def two_weights(first: float, second: float, points: Sequence[float]) -> list[Any]:
    """Return P(a X^2 + b Y^2 > x), x > 0, in polar coordinates: R^2 is exponential, so only the
    angle is integrated over.
    """
    a, b = mpf(first), mpf(second)
    end = mp.pi / 2 if b > 0 else mp.atan(mp.sqrt(a / -b))

    def tail(x: Any) -> Any:
        def inside(angle: Any) -> Any:
            size = a * mp.cos(angle) ** 2 + b * mp.sin(angle) ** 2
            return mp.exp(-x / (2 * size)) if size > 0 else mpf(0)

        return mp.quad(inside, mp.linspace(0, end, 9)) * 2 / mp.pi

    return [tail(mpf(x)) for x in points]


def partial_fractions(weight: Sequence[float], points: Sequence[float]) -> list[Any]:
    """Return P(Q > x), x > 0, where every weight is distinct and has two degrees: a sum of
    exponentials.
    """
    mp.dps = 120
    w = [mpf(v) for v in weight]
    tails = [mpf(0)] * len(points)
    for j, a in enumerate(w):
        if a > 0:
            share = mp.fprod(a / (a - b) for i, b in enumerate(w) if i != j)
            for place, x in enumerate(points):
                tails[place] += share * mp.exp(-mpf(x) / (2 * a))
    mp.dps = 40
    return tails


def case(
    name: str, how: str, law: dict[str, Any], points: Sequence[float], tails: Sequence[Any]
) -> dict[str, Any]:
    """One law with its points and their upper tails, as text of 25 digits."""
    print(name, [mp.nstr(tail, 5) for tail in tails], flush=True)
    return {
        "name": name,
        "method": how,
        **law,
        "points": list(points),
        "upper_tails": [mp.nstr(tail, 25) for tail in tails],
    }


def plain(
    weight: Sequence[float], degrees: Sequence[float], noncentrality: Sequence[float]
) -> dict[str, Any]:
    """A law written out."""
    return {"weight": list(weight), "degrees": list(degrees), "noncentrality": list(noncentrality)}


def cases() -> list[dict[str, Any]]:
    """Every law."""
    rows = []
    for degrees, noncentrality, points in (
        (1, 0, [1e-12, 1e-6, 0.01, 1, 4, 10, 24, 60, 400]),
        (2, 0, [1e-9, 0.1, 2, 10, 28, 200]),
        (100, 0, [40, 70, 100, 130, 170, 220, 900]),
        (10000, 0, [9300, 9700, 10000, 10300, 10700, 12000]),
        (3, 2, [0.001, 0.2, 5, 20, 45, 120]),
        (1, 50, [2, 20, 51, 90, 130, 300]),
        (5, 1000, [700, 900, 1005, 1200, 1350]),
    ):
        law = plain([1.0], [degrees], [noncentrality])
        rows.append(
            case(
                f"one weight, {degrees} degrees, {noncentrality}",
                "gamma",
                law,
                points,
                one_weight(degrees, noncentrality, points),
            )
        )
    for first, second, points in (
        (1.0, 0.5, [1e-9, 1e-3, 0.5, 3, 12, 27, 80]),
        (1.0, 0.001, [1e-6, 1e-3, 1, 9, 24]),
        (1.0, -1.0, [1e-12, 1e-6, 0.01, 1, 9, 24, 90]),
        (1.0, -50.0, [1e-6, 0.1, 3, 20, 60]),
        (0.02, -1.0, [1e-6, 0.01, 0.1, 0.4]),
    ):
        rows.append(
            case(
                f"{first} and {second}",
                "polar",
                plain([first, second], [1, 1], [0, 0]),
                points,
                two_weights(first, second, points),
            )
        )
    pairs = [float(0.9**k) for k in range(60)]
    rows.append(
        case(
            "geometric, two degrees",
            "partial fractions",
            plain(pairs, [2] * 60, [0] * 60),
            p := [4, 12, 30, 50, 120],
            partial_fractions(pairs, p),
        )
    )
    signs = [(-1.0) ** k / (k + 1) for k in range(60)]
    rows.append(
        case(
            "alternating harmonic",
            "partial fractions",
            plain(signs, [2] * 60, [0] * 60),
            p := [1e-3, 0.5, 4, 12, 29, 90],
            partial_fractions(signs, p),
        )
    )
    for name, weight, degrees, noncentrality, points in general():
        how = ("shifted", by_shift) if name == "mixed signs" else ("Davies", by_davies)
        rows.append(
            case(
                name,
                how[0],
                plain(weight, degrees, noncentrality),
                points,
                how[1](weight, degrees, noncentrality, points),
            )
        )
    for count, points in ((10_000, [3, 5, 9, 20, 38, 45]), (100_000, [5, 7, 12, 25, 40])):
        logs, mean = harmonic_log_mgf(count), mp.harmonic(count)
        tails = davies(logs, [mpf(x) for x in points], mean=mean, edges=(None, mpf(1) / 2))
        rows.append(case(f"harmonic {count}", "Davies", {"harmonic": count}, points, tails))
    return rows


def general() -> list[tuple[str, list[float], list[float], list[float], list[float]]]:
    """Laws whose characteristic function falls fast enough for a plain sum."""
    geometric = [float(0.9**k) for k in range(100)]
    power = [float((k + 1) ** -1.5) for k in range(100)]
    spiked = [50.0, *(0.5 + k / 200 for k in range(100))]
    mixed = [*(0.5 + k / 100 for k in range(50)), *(-0.2 - k / 40 for k in range(60))]
    rows: list[tuple[str, list[float], list[float], list[float], list[float]]] = [
        ("geometric", geometric, [1] * 100, [0] * 100, [1.2, 3, 10, 20, 33, 80]),
        ("power law", power, [1] * 100, [0] * 100, [0.35, 0.7, 2.4, 10, 26, 80]),
        ("spiked", spiked, [1] * 101, [0] * 101, [60, 80, 125, 500, 1300, 4000]),
        ("mixed signs", mixed, [1] * 110, [0] * 110, [-160, -90, -7, 30, 70, 200]),
        (
            "many small against some large",
            [0.01, -1.0],
            [10100, 100],
            [0, 0],
            [-90, -20, 1, 30, 60],
        ),
        (
            "mixed, not central",
            [7, 3, -7, -3],
            [6, 2, 1, 1],
            [6, 2, 6, 2],
            [-250, -40, 40, 140, 300],
        ),
        ("Davies, table 3, five", [7, 3], [6, 2], [6, 2], [3, 20, 100, 200, 330]),
        ("Imhof, table 1, Q3", [6, 3, 1], [6, 4, 2], [0, 0, 0], [4, 10, 50, 120, 250]),
    ]
    return rows


if __name__ == "__main__":
    head = (
        "P(Q > x) of weighted sums of chi-squares in 40-digit arithmetic; made by "
        "scripts/make_chi_square_golden.py"
    )
    TARGET.write_text(
        json.dumps({"source": head, "cases": cases()}, indent=1) + "\n", encoding="utf-8"
    )
