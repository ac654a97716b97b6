"""How numbers, names and texts are written for people: short, and cleaned."""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

from groupwise.files import table_column, table_rows
from groupwise.intervals import Interval, percent

_LONGEST = 200
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=|[\w-]+=|-[A-Za-z](?=[/~]))?(.*)", re.DOTALL)
_ENDINGS = re.compile(r"(?<=\w)(\.[A-Za-z_]{2,12}){1,2}$")
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
LAW_NAMES = table_column("forecasting/laws.tsv", "law", "words")


def law_name(law: str) -> str:
    """Return a law's name as a person says it."""
    return LAW_NAMES.get(law, law.replace("_", " "))


def clean(text: object, *, longest: int = _LONGEST) -> str:
    r"""Return `text` on one line of printable characters, cut at `longest`."""
    raw = str(text)
    cut = raw[: longest - 1] + "…" if len(raw) > longest else raw
    if cut.isprintable():
        return cut
    return "".join(" " if character in "\n\r\t" else _seen(character) for character in cut)


def _seen(character: str) -> str:
    """Return a character that can be seen, or U+FFFD."""
    return "\ufffd" if unicodedata.category(character) in _UNSEEN else character


def number(value: float | None, *, digits: int = 3) -> str:
    """Write a number with `digits` significant digits and a true minus."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        text = "0"
    elif size >= 1e15 or size < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{_trimmed(mantissa)}e{int(exponent)}"
    elif size >= 1000:
        text = f"{value:,.0f}"
    else:
        text = _trimmed(f"{value:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}")
    return text.replace("-", "−")


def short(value: float) -> str:
    """Write a level as a reader of a log does, wherever it stands: two decimals, and two digits
    of what is small.
    """
    size, form = abs(value), ".2g"
    if size >= 100:
        form = ",.0f" if size < 1e6 else ".1e"
    elif size >= 9.995 or (size > 1 and size % 1 == 0):
        form = ".3g"
    elif size >= 0.0995 or value == 0:
        form = "z.2f"
    return f"{value:{form}}".replace("e-0", "e-").replace("-", "−")


def _trimmed(text: str) -> str:
    """Drop the zeros that end a decimal fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def alike(*values: float, decimals: int | None = None) -> tuple[str, ...]:
    """Write numbers with the same decimals, by the distance between the outermost."""
    places = decimals_of(values) if decimals is None else decimals
    if places is None:
        return tuple(number(value) for value in values)
    return tuple(
        # nought has no sign
        f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")
        if math.isfinite(value) and (places or abs(value) >= 1)
        else number(value)
        for value in values
    )


def decimals_of(values: Iterable[float]) -> int | None:
    """Return the decimals that tell values apart, or None where plain decimals do not suit them."""
    finite = [value for value in values if math.isfinite(value)]
    largest = max(map(abs, finite), default=0.0)
    apart = max(finite) - min(finite) if finite else 0.0
    scale = apart if apart > 0 else largest / 10  # one value alone gets a digit more
    if largest >= 1e6 or scale < 1e-5:
        return None
    exponent = math.floor(math.log10(scale))
    least = (
        2 if largest < 10 and exponent >= -1 else 0
    )  # a reward's range is about 1, and people read two decimals of it
    return max(least, -exponent + (1 if scale / 10.0**exponent < 5 else 0))


def ranged(interval: Interval) -> str:
    """Write an interval as "0.74 (0.70 to 0.79)"; ends that the data do not limit are named, and
    those of a number that is exact, or has none, left out.
    """
    if interval.low == interval.high or math.isnan(interval.low):
        return number(interval.value)
    value = alike(interval.value, interval.low, interval.high)[0]
    return f"{value} ({limits(interval)})"


def limits(interval: Interval) -> str:
    """Write the ends of an interval as "0.70 to 0.79"; 0 limits nothing where the other end is
    open.
    """
    _, low, high = alike(interval.value, interval.low, interval.high)
    if interval.bounded:
        return f"{low} to {high}"
    if math.isfinite(interval.high):
        return f"at most {high}"
    if interval.low and math.isfinite(interval.low):
        return f"at least {low}"
    return "no limit either way"


def tokens(value: float) -> str:
    """Write an extrapolated number of tokens in two digits: "1.8 M tokens", "950 k tokens"."""
    scaled, unit = _scaled(value, {"": 1.0, " k": 1e3, " M": 1e6, " G": 1e9}, 999.5)
    if math.isfinite(scaled) and scaled != 0:
        scaled = round(scaled, 1 - math.floor(math.log10(abs(scaled))))
    return f"{number(scaled)}{unit} tokens"


def _scaled(value: float, units: Mapping[str, float], most: float) -> tuple[float, str]:
    """Return a value in the smallest unit that leaves it below `most`, or else in the largest."""
    unit = next(
        (unit for unit, scale in units.items() if abs(value) < most * scale), list(units)[-1]
    )
    return value / units[unit], unit


def count(value: float, noun: str, many: str = "") -> str:
    """Write a number of things: "1 row", "1,200 rows"."""
    return f"{value:,.0f} {noun if round(value) == 1 else many or noun + 's'}"


def share_ranged(interval: Interval) -> str:
    """Write a proportion with its interval: "47 % (44 % to 50 %)"."""
    return f"{percent(interval.value)} ({percent(interval.low)} to {percent(interval.high)})"


def duration(hours: float, *, digits: int = 3) -> str:
    """Write a time as a person says it: "67 s", "12 min", "4.7 h", "3.1 days"."""
    if abs(hours) >= 72:
        return f"{number(hours / 24, digits=digits)} days"
    scaled, unit = _scaled(hours, {"s": 1 / 3600, "min": 1 / 60, "h": 1.0}, 100)
    return f"{number(scaled, digits=digits)} {unit}"


def file_size(count_of_bytes: float) -> str:
    """Write a file's size: "412 bytes", "18 kB", "2.3 MB"."""
    scaled, unit = _scaled(count_of_bytes, {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}, 1000)
    return f"{scaled:.0f} bytes" if unit == "bytes" else f"{scaled:.3g} {unit}"


def capital(text: str) -> str:
    """Begin with a capital, but for the name of a column, and leave the rest as it is."""
    return text if re.match(r"\w*[_/]", text) else text[:1].upper() + text[1:]


def sentence(clause: str) -> str:
    """Make a sentence of a clause."""
    return capital(clause) + ("" if clause.endswith((".", "!", "?")) or not clause else ".")


def in_python(text: str) -> str:
    """Return a text in which arguments of Python stand for the options that are such.

    Example:
        >>> in_python("give --set group_size=G --set prompts_per_step=B")
        'give settings={"group_size": "G", "prompts_per_step": "B"}'
    """
    for row in table_rows("arguments.tsv"):
        text = re.sub(row["pattern"], row["argument"], text)
    return text


def bare_name(name: str) -> str:
    """Return a name without the endings of files, which tell no runs apart."""
    return _ENDINGS.sub("", name)


def shortest_paths(paths: Sequence[PurePath]) -> list[str]:
    """Return as much of the ends of paths as tells them all apart, without an end of them all."""
    while (
        len(set(paths)) > 1
        and len({path.name for path in paths}) == 1
        and all(path.parent.name for path in paths)
    ):
        paths = [path.parent for path in paths]
    depth, most = 1, max((len(path.parts) for path in paths), default=0)
    while depth < most and len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def shown_path(path: str, opened: Path | None) -> str:
    """Return a file's path relative to the folder that holds what was opened."""
    if opened is not None:
        file, root = Path(path).absolute(), Path(opened.absolute())
        if root.name in ("", ".."):
            file, root = file.resolve(), root.resolve()
        if file.is_relative_to(root):
            home = root == Path.home()  # its name is a person's
            return file.relative_to(root if home else root.parent).as_posix()
    return _own_name(path)


def shown_argument(argument: str) -> str:
    """Return an argument of the command with every path from elsewhere cut to its own name; one
    below the present folder tells nothing of where that is.
    """
    match = _OPTION.fullmatch(argument)
    assert match is not None  # the pattern takes any text
    option, value = match[1] or "", match[2]
    systems = PurePosixPath, PureWindowsPath
    outside = value.startswith(("~", "../")) or any(of(value).is_absolute() for of in systems)
    return option + (_own_name(value) if outside else value)


def _own_name(path: str) -> str:
    """Return the last part of a path; "." stays."""
    windows = PureWindowsPath(path)
    return (windows.name if windows.is_absolute() and windows.drive else Path(path).name) or path
