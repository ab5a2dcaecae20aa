"""Plots as SVG, drawn here: lines over the last hour."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 10, 22
_HOUR = 3600.0
_TICKS = (60, 45, 30, 15, 0)  # minutes ago
_GAP = 3  # a line is interrupted where so many usual distances are without a point


@dataclass(frozen=True)
class Line:
    """A line.

    style: its number in the stylesheet.
    points: seconds since 1970, and value; ascending.
    """

    name: str
    style: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """A plot.

    step: the usual distance of points in seconds.
    shown: writes a value for people.
    least: how far the axis goes at least.
    """

    title: str
    lines: Sequence[Line]
    step: float
    shown: Callable[[float], str]
    least: float = 1.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.points for line in self.lines)

    def svg(self, now: float | None = None) -> Markup:
        """Return the drawing. now: seconds since 1970; the present for None."""
        end = time.time() if now is None else now
        top = _round_up(max((self.least, *(value for line in self.lines for _, value in line.points))))
        parts = [*self._grid(top), *(_path(line, end, top, self.step) for line in self.lines)]
        label = escape(f"{self.title}: {self.summary}")
        return Markup(  # noqa: S704 - numbers, and texts that are escaped
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" class="plot">{"".join(parts)}</svg>'
        )

    @property
    def summary(self) -> str:
        """The newest and the greatest value of each line, as text."""
        found = [
            f"{line.name} {self.shown(line.points[-1][1])}, at most {self.shown(max(v for _, v in line.points))}"
            for line in self.lines
            if line.points
        ]
        return "; ".join(found) or "no value in the last hour"

    def _grid(self, top: float) -> list[str]:
        parts = []
        for share in (0.0, 0.5, 1.0):
            y = _y(share * top, top)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            text = escape(self.shown(share * top))
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for minutes in _TICKS:
            anchor = {60: "start", 0: "end"}.get(minutes, "middle")
            ago = "now" if not minutes else f"{minutes} min ago"
            x = _x(-60.0 * minutes, 0.0)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{ago}</text>')
        return parts


def _path(line: Line, end: float, top: float, step: float) -> str:
    commands, before = [], None
    for at, value in line.points:
        if at < end - _HOUR:
            continue
        move = "M" if before is None or at - before > _GAP * step else "L"
        commands.append(f"{move}{_x(at, end):.1f} {_y(value, top):.1f}")
        before = at
    if len(commands) == 1:
        # A single point is no line.
        x, y = commands[0][1:].split()
        return f'<circle class="dot s{line.style}" cx="{x}" cy="{y}" r="2.5"/>'
    return f'<path class="line s{line.style}" d="{"".join(commands)}"/>' if commands else ""


def _x(at: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (1 - min(_HOUR, max(0.0, end - at)) / _HOUR)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * min(1.0, value / top)


def _round_up(value: float) -> float:
    """Return the end of an axis: the next 1, 2 or 5 with zeros. value: above 0."""
    size = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.001
    while True:
        for factor in (1, 2, 5):
            if value <= factor * size:
                return factor * size
        size *= 10
