"""JSON lists read item by item: equal to reading them whole, and broken ones located."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biqe.benchmarks.release_files import json_items
from biqe.errors import UnreadableFile

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("json") / "list.json"


@settings(max_examples=50)
@given(st.lists(values, max_size=8), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_equal_to_reading_the_file_whole(path, items, read_chars, indent, ascii_only):
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", errors="surrogatepass")
    assert list(json_items(path, read_chars=read_chars)) == items


@settings(max_examples=50)
@given(st.lists(values, min_size=1, max_size=5), st.data())
def test_every_truncation_is_refused(path, items, data):
    text = json.dumps(items)
    path.write_text(text[: data.draw(st.integers(0, len(text) - 1))])
    with pytest.raises(UnreadableFile, match=r"list\.json"):
        list(json_items(path, read_chars=7))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not start with"),
        ("{}", "does not start with"),
        ("[1, 2,]", "item 2 is not valid JSON"),
        ("[1 2]", "item 0 is followed by neither"),
        ("[1, 2] 3", "goes on after the end"),
        ("[1, nope]", "item 1 is not valid JSON"),
        ("[1, " + "[" * 100_000, "item 1 is (nested too deeply|not valid JSON)"),
        ('["x", "' + "y" * 500 + '"]', "item 1 is longer than 100 characters"),
    ],
)
def test_broken_lists_are_located(path, text, message):
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=message):
        list(json_items(path, read_chars=64, item_chars=100 if "yyy" in text else 1 << 20))


def test_a_byte_order_mark_is_no_part_of_the_list(path):
    path.write_text("[1]", encoding="utf-8-sig")
    assert list(json_items(path)) == [1]


def test_other_encodings_and_missing_files(path, tmp_path):
    path.write_bytes('["ü"]'.encode("latin-1"))
    with pytest.raises(UnreadableFile, match="not UTF-8"):
        list(json_items(path))
    with pytest.raises(UnreadableFile, match="cannot be read"):
        list(json_items(tmp_path / "nothing.json"))
