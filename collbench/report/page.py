"""One self-contained HTML page from a `Page`: style, script and data inlined, no request ever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import escape
from importlib import resources
from typing import Any

from collbench import __version__
from collbench.report.parts import (
    Cell,
    Drawing,
    Figure,
    Page,
    Part,
    Section,
    Snippet,
    Table,
    Text,
    Tiles,
)

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
"""Content security policy: even a hole in the escaping could not load or send anything."""

NUMBER = ' class="number"'


def html(page: Page, *, plotly_js: str | None = None) -> str:
    """Return the page as HTML.

    Args:
        page: What to show; every string in it is treated as untrusted.
        plotly_js: The source of plotly.js; None takes the installed plotly's. It is left out of a
            page that has no figure.
    """
    sections = [section for section in page.sections if section.parts]
    parts = [part for section in sections for part in section.parts]
    figures = [part for part in parts if isinstance(part, Figure)]
    snippets = [part for part in parts if isinstance(part, Snippet)]
    _check_names(figures)
    files = _resource("page.css"), _resource("page.js")
    blocks = "\n".join(_section(section, snippets) for section in sections)
    links = "".join(f'<li><a href="#{escape(s.name)}">{_text(s.title)}</a></li>' for s in sections)
    mood = {True: "good", False: "bad", None: "even"}[page.good]
    script = "" if not figures else (plotly_js if plotly_js is not None else _plotly_js())
    data = _json({"figures": [_plain(f) for f in figures], "files": [s.text for s in snippets]})
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="collbench {__version__}">
<title>{escape(_visible(page.title))}</title>
<link rel="icon" href="data:,">
<style>
{files[0]}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<p class="brand">collbench report</p>
<h1>{escape(_visible(page.title))}</h1>
<p class="verdict {mood}">{escape(_visible(page.verdict))}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main id="main">
<noscript><p class="warning">Plots need JavaScript; their tables below do not.</p></noscript>
{blocks}
</main>
<footer><p>Made by collbench {__version__}. This page makes no network request.</p></footer>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
<script>
{files[1]}</script>
</body>
</html>
"""


def _check_names(figures: list[Figure]) -> None:
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names), f"two figures of one name: {sorted(names)}"


def _section(section: Section, snippets: list[Snippet]) -> str:
    body = "\n".join(_part(part, snippets) for part in section.parts)
    name = escape(section.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{_text(section.title)}</h2>\n{body}\n</section>'
    )


def _part(part: Part, snippets: list[Snippet]) -> str:
    match part:
        case Table():
            return _table(part)
        case Figure():
            return _figure(part)
        case Drawing():
            return (
                f'<figure class="drawing"><div role="img" aria-label="{_attribute(part.says)}">'
                f"{part.svg}</div><figcaption>{_text(part.caption)}</figcaption></figure>"
            )
        case Snippet():
            return _snippet(part, next(i for i, s in enumerate(snippets) if s is part))
        case Text():
            return f'<p class="{escape(part.kind)}">{_text(part.text)}</p>'
        case Tiles():
            tiles = "".join(
                f'<div class="tile"><dt>{_text(label)}</dt><dd>{_text(value)}'
                f"<small>{_text(note)}</small></dd></div>"
                for label, value, note in part.tiles
            )
            return f'<dl class="tiles">{tiles}</dl>'


def _figure(figure: Figure) -> str:
    name, label = escape(figure.name), _attribute(figure.caption)
    table = _table(figure.table) if figure.table else ""
    return (
        f'<figure id="{name}">\n<figcaption>{_text(figure.caption)}</figcaption>\n'
        f'<div class="plot" data-figure="{name}" role="img" aria-label="{label}" '
        f'style="height:{int(figure.height_px)}px"></div>\n'
        f'<p class="says">{_text(figure.says)}</p>\n{table}\n</figure>'
    )


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[i], int | float) for row in table.rows)
        for i in range(len(table.columns))
    ]
    head = "".join(
        f'<th scope="col"{NUMBER if right and i else ""}>{_text(name)}</th>'
        for i, (name, right) in enumerate(zip(table.columns, numeric, strict=True))
    )
    rows = "\n".join(_row(row, numeric) for row in table.rows)
    note = f'<p class="legend">{_text(table.note)}</p>' if table.note else ""
    whole = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_attribute(table.caption)}">'
        f"<table><caption>{_text(table.caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{note}"
    )
    if not table.folded:
        return whole
    return f"<details><summary>{_text(table.caption)} as a table</summary>{whole}</details>"


def _row(row: Any, numeric: list[bool]) -> str:
    cells = list(row)
    first = ""
    if cells:
        text = _cell(cells[0])
        short = ' class="short"' if len(text) <= 24 else ""
        first = f'<th scope="row"{short}>{_text(text)}</th>'
    rest = "".join(_td(*pair) for pair in zip(cells[1:], numeric[1:], strict=True))
    return f"<tr>{first}{rest}</tr>"


def _td(cell: Cell, numeric: bool) -> str:
    kind = ""
    if numeric and not isinstance(cell, str):
        kind = NUMBER
    elif isinstance(cell, str) and len(cell) <= 24:
        kind = ' class="short"'
    return f"<td{kind}>{_text(_cell(cell))}</td>"


def _cell(cell: Cell) -> str:
    """Return a cell's text: numbers with four figures, None as a dash."""
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:#.4g}".rstrip(".")
    return str(cell)


def _snippet(snippet: Snippet, index: int) -> str:
    note = f'<p class="legend">{_text(snippet.note)}</p>' if snippet.note else ""
    title = _text(snippet.title)
    whole = (
        f'<div class="snippet"><div class="bar"><span>{title}</span>'
        f'<button type="button" data-copy="{index}" aria-label="Copy {_attribute(snippet.title)}">'
        f'Copy</button><span class="copied" role="status"></span></div>'
        f'<pre tabindex="0" aria-label="{_attribute(snippet.title)}"><code>{_text(snippet.text)}'
        f"</code></pre></div>{note}"
    )
    return f"<details><summary>{title}</summary>{whole}</details>" if snippet.folded else whole


def _visible(text: str) -> str:
    """Return text with control and direction characters shown as U+FFFD, newlines kept."""
    return "".join(_shown(text))


def _shown(text: str) -> Iterator[str]:
    for char in text:
        point = ord(char)
        hidden = point < 32 or 127 <= point < 160 or 0xD800 <= point < 0xE000
        hidden = hidden or 0x202A <= point <= 0x202E or 0x2066 <= point <= 0x2069
        yield "\ufffd" if hidden and char not in "\n\t" else char


def _text(text: str) -> str:
    return escape(_visible(text))


def _attribute(text: str) -> str:
    return escape(_visible(text), quote=True)


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "data": [_inert(trace) for trace in figure.data],
        "layout": _inert(figure.layout),
    }


def _inert(value: Any) -> Any:
    """Return plotly input whose strings plotly shows as they are: it reads some tags and links.

    Templates of ours are written with ``%{...}`` in the key ``hovertemplate`` alone and pass.
    """
    if isinstance(value, dict):
        return {
            key: item if key == "hovertemplate" else _inert(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_inert(item) for item in value]
    if isinstance(value, str):
        return escape(_visible(value), quote=False).replace("\n", "<br>")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _json(value: Any) -> str:
    """Return JSON that cannot end its script element, whatever is in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return resources.files("collbench.report").joinpath(name).read_text(encoding="utf-8")


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    assert isinstance(source, str)
    return source
