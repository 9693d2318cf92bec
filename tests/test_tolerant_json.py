"""Documents are found in whatever a tool prints around them, and nothing raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.tolerant_json import documents


@pytest.mark.parametrize(
    ("text", "values", "around"),
    [
        pytest.param('{"a": 1}', [{"a": 1}], "", id="a-document-alone"),
        pytest.param("", [], "", id="nothing"),
        pytest.param('\n\n {"a": 1}\n', [{"a": 1}], "", id="blank-lines-around"),
        pytest.param('\ufeff{"a": 1}', [{"a": 1}], "", id="byte-order-mark"),
        pytest.param('err=5: {oops}\n{"a": 1}\nbye', [{"a": 1}], "err=5: {oops}\nbye", id="lines-before-and-after"),
        pytest.param('{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}], "", id="one-after-another"),
        pytest.param('{"a": 1}{"a": 2}', [{"a": 1}, {"a": 2}], "", id="back-to-back"),
        pytest.param('eta 3s\r{"a": 1}', [{"a": 1}], "eta 3s", id="after-a-progress-line"),
        pytest.param('WARNING: render\n[{"gpu": 0}]', [[{"gpu": 0}]], "WARNING: render", id="array-of-objects"),
        pytest.param('[3] job done\n{"a": 1}', [{"a": 1}], "[3] job done", id="bracketed-number-in-a-log"),
        pytest.param('{"a": 1}\n{"a": [\n  {"b": 2},', [{"a": 1}], '{"a": [\n  {"b": 2},', id="cut-off"),
        pytest.param('{"a": [\n,\n{"b": 1}]}', [{"a": [{"b": 1}]}], "", id="lone-comma-of-iostat"),
        pytest.param(
            '{"a": -nan, "b": nan, "c": inf, "d": [-inf, NaN], "e": -Infinity}',
            [{"a": None, "b": None, "c": None, "d": [None, None], "e": None}],
            "",
            id="not-numbers",
        ),
        pytest.param('{"a": 1e999}', [{"a": None}], "", id="beyond-a-float"),
        pytest.param('{"a nan": "[, inf"}', [{"a nan": "[, inf"}], "", id="strings-stay"),
        pytest.param('nan\n{"a": 1}', [{"a": 1}], "nan", id="text-around-stays"),
        pytest.param("[" * 100_000, [], "[" * 100_000, id="too-deep"),
        pytest.param('{"a": ' + "9" * 5000 + "}", [], '{"a": ' + "9" * 5000 + "}", id="too-many-digits"),
    ],
)
def test_documents_and_the_text_around_them(text: str, values: list[Any], around: str) -> None:
    assert documents(text) == (values, around)


@given(st.text(alphabet='{}[]",:\n na-inf1e9\\'))
def test_any_text_ends_in_values(text: str) -> None:
    assert all(isinstance(value, dict | list) for value in documents(text)[0])
