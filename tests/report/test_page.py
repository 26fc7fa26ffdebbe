"""The HTML of a page: whatever stands in a record is shown as text, and nothing loads anything."""

import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.report.page import html
from collbench.report.parts import Figure, Page, Section, Snippet, Table, Text, Tiles

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<!-- <script>",
    "]]>",
    "\x1b[31mred\x1b[0m",
    "node\u202e7",
    "&lt;b&gt; &amp;",
    "%{x} <a href='javascript:alert(1)'>x</a>",
]


class Parsed(HTMLParser):
    """Tags, attributes and text of a page, script and style apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.raw: dict[str, str] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def names(self) -> list[str]:
        """Attribute names; a cell's class follows the length of its text."""
        return [name for name, _ in self.attributes if name != "class"]

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside] = self.raw.get(self._inside, "") + data
        else:
            self.text.append(data)


def page(text: str) -> Page:
    table = Table(caption=text, columns=[text] * 4, rows=[[text, text, 1.5, None]], note=text)
    figure = Figure(
        name="one",
        caption=text,
        data=[{"type": "scatter", "name": text, "x": [1], "y": [2], "text": [text]}],
        layout={"xaxis": {"title": {"text": text}}},
        says=text,
        table=table,
    )
    parts = [figure, table, Text(text=text), Tiles(tiles=[(text, text, text)])]
    section = Section(name="a", title=text, parts=[*parts, Snippet(title=text, text=text)])
    return Page(title=text, verdict=text, sections=[section])


def parsed(text: str) -> Parsed:
    return Parsed(html(page(text), plotly_js="/* plotly */"))


PLAIN = parsed("plain")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_tag_and_no_attribute(text: str) -> None:
    found = parsed(text)
    assert found.tags == PLAIN.tags
    assert found.names() == PLAIN.names()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", "".join(found.text))


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_no_text_whatever_changes_the_structure(text: str) -> None:
    found = parsed(text)
    assert found.tags == PLAIN.tags
    assert found.names() == PLAIN.names()


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_a_file_to_copy_comes_through_unchanged(text: str) -> None:
    data = json.loads(parsed(text).raw["data"])
    assert data["files"] == [text]


def test_markup_in_plot_text_is_shown_and_not_read_by_plotly() -> None:
    data = json.loads(parsed("<b>x</b> & <a href='http://evil'>y</a>").raw["data"])
    trace = data["figures"][0]["data"][0]
    shown = "&lt;b&gt;x&lt;/b&gt; &amp; &lt;a href='http://evil'&gt;y&lt;/a&gt;"
    assert (trace["name"], trace["text"]) == (shown, [shown])


def test_a_page_has_one_policy_that_forbids_every_request_and_no_address() -> None:
    found = parsed("plain")
    policy = [v for n, v in found.attributes if n == "content" and v and "default-src" in v]
    assert policy
    assert policy[0].startswith("default-src 'none'")
    assert not [v for n, v in found.attributes if n in ("src", "href") and v and ":" in v[:8]][1:]


def test_a_page_without_figures_carries_no_plotting_library() -> None:
    text = html(Page(title="t", verdict="v"))
    assert len(text) < 30_000


def test_not_a_number_becomes_a_dash_and_valid_json() -> None:
    nan = float("nan")
    table = Table(caption="c", columns=["a", "b"], rows=[["x", nan]])
    data = [{"type": "scatter", "x": [nan], "y": [float("inf")]}]
    figure = Figure(name="n", caption="c", data=data, layout={}, says="s", table=table)
    whole = Page(title="t", verdict="v", sections=[Section(name="a", title="b", parts=[figure])])
    found = Parsed(html(whole, plotly_js=""))
    assert json.loads(found.raw["data"])["figures"][0]["data"][0]["x"] == [None]
    assert "-" in found.text


def test_a_number_keeps_its_decimals_so_that_columns_line_up() -> None:
    table = Table(caption="c", columns=["a", "b"], rows=[["x", 4.02], ["y", 12345.6], ["z", 7]])
    whole = Page(title="t", verdict="v", sections=[Section(name="a", title="b", parts=[table])])
    text = Parsed(html(whole)).text
    assert {"4.020", "12,346", "7"} <= set(text)


def test_two_figures_of_one_name_are_our_fault_and_noticed() -> None:
    table = Table(caption="c", columns=[], rows=[])
    figure = Figure(name="n", caption="c", data=[], layout={}, says="s", table=table)
    section = Section(name="a", title="b", parts=[figure, figure])
    with pytest.raises(AssertionError, match="two figures of one name"):
        html(Page(title="t", verdict="v", sections=[section]), plotly_js="")


def test_every_plot_and_table_has_words_for_a_screen_reader() -> None:
    text = html(page("plain"), plotly_js="")
    assert text.count("<caption>") == text.count("<table>")
    assert 'role="img" aria-label=' in text
    assert text.count('scope="col"') == 2 * 4
    assert '<html lang="en">' in text
