"""Reading documents, running their cells, and comparing what became of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cells.compare import compare_texts, verdict
from tests.cells.pages import docstrings, page
from tests.cells.run_cells import run_page

_MARKDOWN = """
```{code-cell} ipython3
:tags: [raises-exception]

x = 1
%timeit -n 3 x
```

```{code-cell}
---
tags: [hide]
---
!pip install jax
x + 1
```
"""


def test_pages(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(_MARKDOWN)
    assert page(tmp_path, tmp_path / "a.md").cells == ("\nx = 1\nx", "pass\nx + 1")
    (tmp_path / "b.md").write_text("1. text\n\n   ```python\n   >>> y = [\n   ...   2]\n   >>> y\n   [2]\n   ```\n")
    assert page(tmp_path, tmp_path / "b.md").cells == ("y = [\n  2]", "y")
    cells = [{"cell_type": "code", "source": ["s = '''\n", "%kept'''"]}, {"cell_type": "markdown", "source": "text"}]
    (tmp_path / "c.ipynb").write_text(json.dumps({"cells": cells}))
    assert page(tmp_path, tmp_path / "c.ipynb").cells == ("s = '''\n%kept'''",)
    (tmp_path / "d.py").write_text(
        'def f():\n  """Text.\n\n  >>> 1 + 1\n  2\n  """\nclass C:\n  def g(self):\n    """>>> 3"""\n'
    )
    found = docstrings(tmp_path, tmp_path / "d.py")
    assert [(p.name, p.cells) for p in found] == [("d.py::f", ("1 + 1\n",)), ("d.py::C.g", ("3\n",))]


def test_cells_share_a_namespace_and_tell_what_they_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_page("p", ["x = 2", "print(x); x", "x.none", "x + 1;"], str(tmp_path), {}, 60)
    assert [(row["raised"], row["printed"]) for row in rows] == [
        (None, ""),
        (None, "2\n2\n"),
        ("AttributeError", ""),
        (None, ""),
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "kind"),
    [
        ("a  1.0\n", "a 1.0", "same"),
        ("took 1.2 s at 0x7f0012345678", "took 9 ms at 0x7f0087654321", "same"),
        ("sin from /a/b.py:3:9 (g)", "sin from b.py:3", "same"),
        ("sin from /a/b.py:3:9 (g)", "sin from b.py:4", "differs"),
        ("[1.00001, nan]", "[1.00002, nan]", "digits"),
        ("[1.0, 2.0]", "[1.0, 2.1]", "differs"),
        ("[1.0, nan]", "[1.0, 2.0]", "differs"),
        ("f32[2]", "i32[2]", "differs"),
    ],
)
def test_texts(theirs: str, ours: str, kind: str) -> None:
    assert compare_texts(theirs, ours).kind == kind


def test_verdicts() -> None:
    def row(raised: str | None) -> dict[str, str | None]:
        return {"raised": raised, "printed": "", "message": ""}

    kinds = [
        verdict(row(a), row(b)).kind
        for a, b in ((None, "E"), ("E", None), ("E", "E"), ("E", "F"), ("NameError", None), (None, None))
    ]
    assert kinds == ["raises", "raises in JAX", "same", "raises in JAX", "not in JAX", "same"]
