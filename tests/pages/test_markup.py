"""Markup: text is escaped wherever it comes from, attributes too."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.pages.html import embedded
from groupwise.pages.markup import breakable, filled, isolated, tag


class Reader(HTMLParser):
    """Collects the elements and the text of a piece of markup."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs


def read(source: object) -> Reader:
    reader = Reader()
    reader.feed(str(source))
    reader.close()
    return reader


hostile = st.text(st.sampled_from("<>&\"'/=ab -!\u202e\x00") | st.characters(), max_size=60)


@given(hostile)
def test_no_text_becomes_an_element_or_an_attribute(content: str) -> None:
    markup = tag("p", content, isolated(content), title=content)
    reader = read(markup)
    assert reader.elements == ["p", "bdi"]
    assert [name for name, _ in reader.attributes] == (["title"] if content else [])


@given(hostile)
def test_embedded_json_cannot_end_its_element(content: str) -> None:
    document = embedded({"a": content})
    assert not set(document) & set("<>&")
    assert document.isascii()


def test_a_name_may_break_after_its_punctuation_only() -> None:
    assert str(breakable("a_b<c.d")) == "<bdi>a_<wbr>b&lt;c.<wbr>d</bdi>"


def test_attribute_names_are_written_as_html_has_them() -> None:
    assert str(tag("p", "x", class_="a", aria_label="b")) == '<p class="a" aria-label="b">x</p>'


def test_a_file_of_markup_is_filled_once_and_nothing_is_left_unescaped() -> None:
    """What a text holds is no place, and markup stays markup."""
    made = str(filled("footer.html", command="{{made}} <b>", made=tag("i", "at 5 %")))
    assert made.startswith('<footer><p>Made by <span class="key">{{made}} &lt;b&gt;</span>')
    assert "<p><i>at 5\u00a0%</i></p>" in made
    with pytest.raises(KeyError, match="made"):
        filled("footer.html", command="")
