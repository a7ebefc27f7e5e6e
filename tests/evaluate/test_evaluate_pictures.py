"""What all pictures share: files by their ending, matplotlib missing, one at a time."""

import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import pytest

from biqe.errors import InvalidOption, RunFailed
from biqe.evaluate import pictures
from biqe.evaluate.pictures import Page


def two_boxes():
    page = Page()
    page.box(10, 20, 30, 40, fill=pictures.BLUE)
    page.text(10, 100, "a <b> & $c$")
    page.line([(60, 10), (90, 10), (120, 30)], stroke=pictures.ORANGE, is_dashed=True, is_arrow=True)
    return page.figure(10)


def test_a_file_by_its_ending(tmp_path):
    pictures.save(two_boxes, tmp_path / "a.svg", "title")
    pictures.save(two_boxes, tmp_path / "a.PNG", "title")
    assert (tmp_path / "a.svg").read_bytes() == pictures.render(two_boxes, "svg", "title")
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidOption, match=r"ends in \.svg or \.png. Got 'a.gif'"):
        pictures.save(two_boxes, tmp_path / "a.gif", "title")
    with pytest.raises(RunFailed, match="could not be written"):
        pictures.save(two_boxes, tmp_path / "nowhere" / "a.svg", "title")


def test_a_page_is_as_large_as_what_is_on_it():
    root = ET.fromstring(pictures.render(two_boxes, "svg", 'a "title" <&>'))
    assert root.get("viewBox") == "0 0 130 113"  # the tip of the arrow and the descenders of the text, with margins
    assert root.get("aria-label") == 'a "title" <&>'
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")] == ["a <b> & $c$"]


def test_without_matplotlib_there_is_a_hint(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not pictures.installed()
    for draw in (
        lambda: pictures.render(two_boxes, "svg", "title"),
        lambda: pictures.save(two_boxes, tmp_path / "a.svg", "title"),
    ):
        with pytest.raises(InvalidOption, match="need matplotlib") as refused:
            draw()
        assert refused.value.hint == "pip install 'biqe[pictures]'"
    assert not (tmp_path / "a.svg").exists()


def test_pictures_are_drawn_alike_by_many_threads_and_leave_settings_alone():
    before = dict(matplotlib.rcParams)
    with ThreadPoolExecutor(4) as pool:
        drawn = set(pool.map(lambda _: pictures.render(two_boxes, "svg", "title"), range(12)))
    assert len(drawn) == 1
    assert dict(matplotlib.rcParams) == before


def test_what_a_picture_cannot_hold_is_replaced():
    assert pictures.printable("Köln 川 \U0001f600 $x$") == "Köln 川 \U0001f600 $x$"
    for bad in ("\x00", "\x1b", "\x7f", "\u202e", "\ud800", "\ufffe"):
        assert pictures.printable(f"a{bad}b") == "a\ufffdb"
