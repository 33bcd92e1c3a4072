"""No test skips in CI because an oracle or a tool is missing."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

def test_oracle():
    pytest.importorskip("jax_of_another_era")

@pytest.mark.skipif(True, reason="needs mpi4py and mpiexec: pip install '.[mpi]'")
def test_processes(): ...

@pytest.mark.skipif(True, reason="the processor has no AVX-512")
def test_instructions(): ...

def test_passes(): ...
"""


@pytest.mark.parametrize(
    ("variables", "counts"),
    [({}, "1 passed, 4 skipped, 1 error"), ({"CI": "true"}, "1 failed, 1 passed, 1 skipped, 3 errors")],
)
def test_skips_for_want_of_oracles_are_failures(shell, tmp_path, variables, counts):
    (tmp_path / "test_few.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text('import pytest\npytest.importorskip("jax_of_another_era")\n')
    (tmp_path / "test_wrong.py").write_text("import nothing_of_this_name\n")
    done = shell(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "--continue-on-collection-errors",
        "--rootdir",
        tmp_path,
        tmp_path,
        **{"CI": "", **variables},
    )
    assert done.stdout.splitlines()[-1].partition(" in ")[0] == counts, done.stdout
