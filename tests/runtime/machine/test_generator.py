"""LLVM called directly: the same code as through llvmlite's Python modules, which it does without."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shardwise.runtime.machine import llvm

if not llvm.available():
    pytest.skip("nothing can be compiled here", allow_module_level=True)

import llvmlite

from shardwise.runtime.machine import generator

FOLDER = os.path.dirname(llvmlite.__file__)

TEXT = """
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define void @kernel(ptr %to, ptr %from, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr <8 x float>, ptr %from, i64 %i
  %x = load <8 x float>, ptr %at, align 4
  %y = call <8 x float> @llvm.fma.v8f32(<8 x float> %x, <8 x float> %x, <8 x float> %x)
  %there = getelementptr <8 x float>, ptr %to, i64 %i
  store <8 x float> %y, ptr %there, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def direct() -> generator.Direct:
    found = generator.open_generator(FOLDER, llvmlite.__version__)
    if not isinstance(found, generator.Direct):
        pytest.skip("this llvmlite is called through its Python modules")
    return found


def features_of(made: generator.Generator) -> str:
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(made.features.items()))


def test_both_ways_make_the_same_code():
    one, other = direct(), generator.Bound()
    assert (one.version, one.processor, one.process_triple) == (other.version, other.processor, other.process_triple)
    assert one.features == other.features and one.features
    (triple, compiled), (same, expected) = (made.machine(features_of(made)) for made in (one, other))
    assert triple == same
    assert compiled(TEXT) == expected(TEXT)


@pytest.mark.parametrize("way", [direct, generator.Bound])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("define void @f() {\n  no such instruction\n}\n", "expected instruction opcode"),
        ("define void @f(i64 %x) {\n  %y = add i64 %z, 1\n  ret void\n}\n", "use of undefined value"),
        (  # reads well, but is no program
            "define i64 @f(i1 %c) {\na:\n  br i1 %c, label %b, label %d\nb:\n  %x = add i64 1, 2\n  br label %d\nd:\n  ret i64 %x\n}\n",
            "does not dominate",
        ),
    ],
)
def test_text_that_llvm_refuses(way, text, problem):
    made = way()
    _, compiled = made.machine(features_of(made))
    with pytest.raises(RuntimeError, match=problem):
        compiled(text)
    assert compiled(TEXT)  # it goes on


@pytest.mark.parametrize("version", ["0.43.0", "1.44.0", "0.9999.1", "0.x", "", "0.44rc1"])
def test_versions_that_are_not_known_go_through_python(version):
    assert isinstance(generator.open_generator(FOLDER, version), generator.Bound)


def test_a_library_elsewhere_is_found_through_python(tmp_path):
    assert isinstance(generator.open_generator(str(tmp_path), "0.50.0"), generator.Bound)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere llvmlite's Python modules are used")
def test_llvmlites_modules_are_not_needed():
    direct()
    program = """
import ctypes, sys
from shardwise.runtime.machine import llvm
print(llvm.compile_function("f", "define i64 @f() {\\n  ret i64 42\\n}\\n").as_ctypes(ctypes.CFUNCTYPE(ctypes.c_int64))())
print("llvmlite.binding" in sys.modules)
import llvmlite.binding as binding  # both may live in one process
machine = binding.Target.from_default_triple().create_target_machine()
print(len(machine.emit_object(binding.parse_assembly("define i64 @g() {\\n  ret i64 43\\n}\\n"))) > 100)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"SHARDWISE_CACHE": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["42", "False", "True"], done.stderr
