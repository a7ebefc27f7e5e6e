"""A run as a picture: loss above, validation below, over the time used. Plain SVG, no plotting library."""

from __future__ import annotations

from html import escape

from biqe.models.store import write_whole
from biqe.train.run import Run

WIDTH, HEIGHT, LEFT, RIGHT, GAP = 720, 220, 64, 16, 44

Points = list[tuple[float, float]]


def draw(run: Run) -> None:
    """Write RUN/run.svg from the trace."""
    write_whole(run.folder / "run.svg", picture(run))


def picture(run: Run) -> str:
    """The run as an SVG document."""
    events = run.trace()
    loss = [(e["seconds"] / 60, e["loss"]) for e in events if e.get("event") == "steps"]
    validations = [e for e in events if e.get("event") == "validation"]
    figure = "auc" if any("auc" in e for e in validations) else "mrr"
    found = [(e["seconds"] / 60, e[figure]) for e in validations if figure in e]
    end = max([x for x, _ in loss + found], default=1.0) or 1.0
    panels = [
        _panel("training loss", loss, end, 30, dots=False),
        _panel(
            f"validation {figure.upper()} (nothing here knows a test triple)", found, end, 30 + HEIGHT + GAP, dots=True
        ),
    ]
    height = 30 + 2 * (HEIGHT + GAP) + 10
    title = f"{run.record['model']}, {run.folder.resolve().name}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            f'font-size="12" role="img" aria-label="{escape(title)}">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
            *panels,
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 8}" text-anchor="middle">minutes</text>',
            "</svg>",
            "",
        ]
    )


def _panel(title: str, points: Points, end: float, top: float, *, dots: bool) -> str:
    """One curve with its axes."""
    low, high = min((y for _, y in points), default=0.0), max((y for _, y in points), default=1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / end
        down = top + 20 + (HEIGHT - 20) * (high - y) / (high - low)
        return round(across, 1), round(down, 1)

    parts = [f'<text x="{LEFT}" y="{top + 12}">{escape(title)}</text>']
    for step in range(5):
        y = low + (high - low) * step / 4
        _, down = place(0, y)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down}" y2="{down}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{down + 4}" text-anchor="end">{y:.3g}</text>')
        across, _ = place(end * step / 4, low)
        parts.append(f'<text x="{across}" y="{top + HEIGHT + 16}" text-anchor="middle">{end * step / 4:.3g}</text>')
    if points:
        line = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>')
    else:
        parts.append(f'<text x="{LEFT + 10}" y="{top + HEIGHT / 2}" fill="#666">nothing yet</text>')
    if dots:
        parts += [
            f'<circle cx="{x}" cy="{y}" r="3" fill="#1f6feb"><title>{value:.4f}</title></circle>'
            for (x, y), value in ((place(*point), point[1]) for point in points)
        ]
    return "\n".join(parts)
