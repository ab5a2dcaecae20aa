"""Write the results into the pages of docs/evidence, and draw one plot of each beside them.

The pages are written by hand except for their blocks between `<!-- results: NAME -->` and `<!-- end of results -->`.
Each block is generated from benchmarks/results/NAME.json, with docs/evidence/plots/NAME.svg, or says that it is not
measured yet. A block `<!-- plot: NAME -->` has the plot alone, and the commit. Each result has one block of results.

    python -m benchmarks.report
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS

PAGES = Path(__file__).parent.parent / "docs" / "evidence"
PLOTS = PAGES / "plots"
_BLOCK = re.compile(r"<!-- (?P<kind>results|plot): (?P<name>\w+) -->\n.*?<!-- end of results -->", re.DOTALL)
# Figures from this size on are shown without decimals, smaller ones with three digits.
_WHOLE = 100

# Sizes of the plots in pixels.
_BAR, _GAP, _LEFT, _RIGHT, _TOP, _WIDTH = 22, 12, 190, 110, 34, 720
_COLOUR, _SPREAD, _TEXT = "#4c78a8", "#1f2d3d", "#57606a"


def main() -> None:
    """Write the pages and their plots."""
    results = read_results(RESULTS)
    PLOTS.mkdir(exist_ok=True)
    for name, result in results.items():
        (PLOTS / f"{name}.svg").write_text(plot(result), encoding="utf-8")
    pages = {file: file.read_text(encoding="utf-8") for file in PAGES.glob("*.md")}
    require_a_block_for_each(results, pages.values())
    for file, page in pages.items():
        file.write_text(render(page, results), encoding="utf-8")


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the contents of all result files, by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def require_a_block_for_each(results: Iterable[str], pages: Iterable[str]) -> None:
    """Raise SystemExit for results without a block of results, which nobody would see, or with several."""
    blocks = Counter(match["name"] for page in pages for match in _BLOCK.finditer(page) if match["kind"] == "results")
    if wrong := [name for name in results if blocks[name] != 1]:
        raise SystemExit(
            f"docs/evidence must have one `<!-- results: NAME -->` for each of: {', '.join(sorted(wrong))}; "
            "add it to a page, or remove the file of results"
        )


def render(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with each block generated from its results; a remark that occurs twice on a page is shown once."""
    said: set[str] = set()

    def block(match: re.Match[str]) -> str:
        kind, name = match["kind"], match["name"]
        lines: Iterable[str] = ["Not measured yet."]
        if name in results:
            lines = _results(name, results[name], said) if kind == "results" else _plot(name, results[name])
        return "\n".join([f"<!-- {kind}: {name} -->", *lines, "<!-- end of results -->"])

    return _BLOCK.sub(block, page)


def _results(name: str, result: Mapping[str, Any], said: set[str]) -> Iterable[str]:
    yield _provenance(result)
    yield ""
    yield from table(result["cases"])
    yield ""
    yield _picture(name, result)
    texts = (
        f"- **{case}**: " + " ".join(f"*{title}*: {text.rstrip('.')}." for title, text in content["remarks"].items())
        for case, content in result["cases"].items()
        if content["remarks"]
    )
    new = [text for text in texts if text not in said]
    said.update(new)
    if new:
        yield ""
    yield from new


def _plot(name: str, result: Mapping[str, Any]) -> Iterable[str]:
    yield _picture(name, result)
    yield ""
    yield f"`{result['command']}`, finished {result['finished'][:10]} at commit {result['commit'][:10]}."


def _picture(name: str, result: Mapping[str, Any]) -> str:
    return f"![{_words(_plotted(result))}]({PLOTS.name}/{name}.svg)"


def _provenance(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    runs = max(len(f["runs"]) for case in result["cases"].values() for f in case["figures"].values())
    parameters = ", ".join(f"{_words(name)} {_value(value)}" for name, value in result["parameters"].items())
    return (
        f"`{result['command']}` ({parameters}), {runs} {'run' if runs == 1 else 'runs'}, finished {result['finished']} "
        f"at commit {result['commit']}, on {machine['cores']} cores ({machine['processor']}, "
        f"{machine['memory_gib']} GiB, {machine['system']}); 1-minute load before the runs "
        f"{min(result['load'])} to {max(result['load'])}. Medians, in brackets the least and the greatest run."
    )


def table(cases: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Return a Markdown table with a row per figure and a column per case."""
    figures = list(dict.fromkeys(name for case in cases.values() for name in case["figures"]))
    yield "| | " + " | ".join(cases) + " |"
    yield "|---|" + "--:|" * len(cases)
    for name in figures:
        cells = (_cell(case["figures"].get(name)) for case in cases.values())
        yield f"| {_words(name)} | " + " | ".join(cells) + " |"


def _cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    if figure["low"] == figure["high"]:
        return _number(figure["median"])
    return f"{_number(figure['median'])} ({_number(figure['low'])} to {_number(figure['high'])})"


def plot(result: Mapping[str, Any]) -> str:
    """Return an SVG of horizontal bars, one per case: the median of the first figure, with a line from low to high."""
    name = _plotted(result)
    cases = {case: found["figures"][name] for case, found in result["cases"].items() if name in found["figures"]}
    most = max(figure["high"] for figure in cases.values()) or 1
    height = _TOP + len(cases) * (_BAR + _GAP)
    shapes = [f'<text x="0" y="18" font-weight="bold" fill="{_TEXT}">{escape(_words(name))}</text>']
    for place, (case, figure) in enumerate(cases.items()):
        shapes += _bar(case, figure, most, _TOP + place * (_BAR + _GAP))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def _bar(case: str, figure: Mapping[str, Any], most: float, y: int) -> Iterable[str]:
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    middle, base = y + _BAR / 2, y + _BAR * 0.7
    low, high, end = (_LEFT + figure[name] * scale for name in ("low", "high", "median"))
    yield f'<text x="{_LEFT - 8}" y="{base:.1f}" text-anchor="end" fill="{_TEXT}">{escape(case)}</text>'
    yield f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR}" fill="{_COLOUR}"/>'
    yield f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{_SPREAD}" stroke-width="2"/>'
    yield f'<text x="{high + 8:.1f}" y="{base:.1f}" fill="{_TEXT}">{_number(figure["median"])}</text>'


def _plotted(result: Mapping[str, Any]) -> str:
    return str(next(name for case in result["cases"].values() for name in case["figures"]))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    return _number(value) if isinstance(value, int | float) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _WHOLE or value == int(value) else f"{value:.3g}"


if __name__ == "__main__":
    main()
