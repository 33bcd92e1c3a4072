"""Object files brought into memory: what they compute, and what is left to LLVM's own loader."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys

import pytest

from shardwise.runtime.machine import llvm, machine_code
from shardwise.runtime.machine.outside import outside_address

if not llvm.available():
    pytest.skip("nothing can be compiled here", allow_module_level=True)

# Two functions, one of which calls the other and the C library; constants in a section of their own.
WAVES = """
@table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
declare double @sin(double)
define double @entry(i64 %i) noinline {
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %x = load double, ptr %at
  ret double %x
}
define double @wave(i64 %i) {
  %x = call double @entry(i64 %i)
  %s = call double @sin(double %x)
  %t = fadd double %s, 0.25
  ret double %t
}
"""
COUNTER = """
@count = private global i64 41
define i64 @next() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  ret i64 %new
}
"""


def call(address: int, result, *arguments):
    return ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * len(arguments))(address)(*arguments)


def test_functions_constants_and_the_c_library():
    found = llvm.compile_function("wave", WAVES)
    for i in range(4):
        assert call(found.address, ctypes.c_double, i) == math.sin(2**i) + 0.25
        assert call(found.owner.address_of("entry"), ctypes.c_double, i) == 2**i
    with pytest.raises(KeyError):
        machine_code.MachineCode().address_of("entry")


def test_what_is_written_to_is_loaded_by_llvm():
    code = llvm._need().compiler().compiled(COUNTER)
    with pytest.raises(machine_code.Unfamiliar):
        machine_code.load_code(code, outside_address)
    found = llvm.compile_function("next", COUNTER)
    assert [call(found.address, ctypes.c_int64) for _ in range(2)] == [42, 43]


def test_parts_of_a_file_are_refused():
    code = llvm._need().compiler().compiled(WAVES)
    for end in range(0, len(code), 7):
        with pytest.raises(machine_code.Unfamiliar):
            machine_code.load_code(code[:end], outside_address)
    with pytest.raises(machine_code.Unfamiliar):
        machine_code.load_code(b"\x7fELF" + bytes(500), outside_address)


def test_a_function_that_nobody_has_is_named():
    code = llvm._need().compiler().compiled(WAVES.replace("@sin", "@no_such_function"))
    with pytest.raises(OSError, match="no_such_function"):
        machine_code.load_code(code, outside_address)


def test_a_child_of_a_fork_compiles():
    program = """
import ctypes, os, threading
from shardwise.runtime.machine import llvm
text = "define i64 @answer() {\\n ret i64 %d\\n}\\n"
stop = threading.Event()
def busy():
    number = 0
    while not stop.is_set():
        number += 1
        llvm.compile_function("answer", text % number)
llvm.compile_function("answer", text % 0)
threading.Thread(target=busy, daemon=True).start()
codes = []
for number in range(5):
    child = os.fork()
    if not child:
        found = llvm.compile_function("answer", text % -number)
        os._exit(0 if found else 1)
    codes.append(os.waitpid(child, 0)[1])
stop.set()
print(codes)
"""
    command, env = [sys.executable, "-W", "ignore", "-c", program], os.environ | {"SHARDWISE_CACHE": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]", done.stderr
