"""The README's main job."""

from __future__ import annotations

import re
from pathlib import Path

DIGITS = Path(__file__).parent.parent / "examples" / "digits.py"


def test_three_styles_agree(shell):
    done = shell(DIGITS)
    assert done.stderr == ""
    assert done.returncode == 0
    accuracies = re.findall(r"(?:automatic|explicit|manual) +│ +\d+ of 396 │ +([\d.]+)%", done.stdout)
    assert len(accuracies) == 3
    assert len(set(accuracies)) == 1
    assert float(accuracies[0]) > 95
    for what in ("all_reduce over model of f32[1400,10]", "all_reduce over data of f32[64,256]"):
        assert what in done.stdout
