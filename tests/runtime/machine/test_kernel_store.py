"""The kernels on disk: kept whole, for one origin each, in a folder that is ours alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardwise.base import config
from shardwise.runtime.machine import kernel_store, llvm, processor

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs files with owners")

ANSWER = """
define i64 @answer() {
  ret i64 %d
}
"""


@pytest.fixture
def place(tmp_path):
    """A folder that code is kept in for the length of a test."""
    chosen = tmp_path / "kernels"
    before = config.shardwise_cache_dir, config.shardwise_cache, config.jax_enable_compilation_cache
    names = "shardwise_cache_dir", "shardwise_cache", "jax_enable_compilation_cache"
    for name, value in zip(names, (str(chosen), True, True), strict=True):
        config.update(name, value)
    yield chosen
    for name, value in zip(names, before, strict=True):
        config.update(name, value)


def test_what_was_kept_is_found(place):
    assert kernel_store.load("a") is None
    kernel_store.save("a", b"code of a")
    kernel_store.save("b", b"")
    assert kernel_store.load("a") == b"code of a"
    assert kernel_store.load("b") == b""
    assert kernel_store.load("c") is None
    assert place.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in place.iterdir()} == {0o600}
    assert len(list(place.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"x", b"shardwise kernel 1\n", None])
def test_damaged_files_are_dropped(place, damage):
    kernel_store.save("a", b"code of a")
    (file,) = place.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"?" if damage is None else damage)
    assert kernel_store.load("a") is None
    assert not file.exists()
    kernel_store.save("a", b"anew")
    assert kernel_store.load("a") == b"anew"


def test_a_file_under_another_name_is_not_taken(place):
    kernel_store.save("a", b"code of a")
    (file,) = place.iterdir()
    kernel_store.save("b", b"code of b")
    (other,) = set(place.iterdir()) - {file}
    file.replace(other)
    assert kernel_store.load("b") is None


def test_files_that_others_could_write_are_not_read(place, tmp_path):
    kernel_store.save("a", b"code of a")
    (file,) = place.iterdir()
    file.chmod(0o666)
    assert kernel_store.load("a") is None
    file.chmod(0o600)
    assert kernel_store.load("a") == b"code of a"
    moved = tmp_path / "elsewhere"
    file.rename(moved)
    file.symlink_to(moved)
    assert kernel_store.load("a") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_could_write_is_refused_once(tmp_path, mode):
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(mode)
    with config.override("shardwise_cache_dir", str(place)):
        with pytest.warns(
            UserWarning, match=r"can be written by others .*chmod 700.*SHARDWISE_CACHE_DIR.*SHARDWISE_CACHE=0"
        ):
            kernel_store.save("a", b"code")
        assert kernel_store.load("a") is None  # without a second warning, which would be an error here
    assert not list(place.iterdir())


def test_a_symbolic_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with (
        config.override("shardwise_cache_dir", str(tmp_path / "link")),
        pytest.warns(UserWarning, match="symbolic link"),
    ):
        kernel_store.save("a", b"code")
    assert not list((tmp_path / "real").iterdir())


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    place = tmp_path / "theirs"
    place.mkdir(mode=0o700)
    owner = place.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with (
        config.override("shardwise_cache_dir", str(place)),
        pytest.warns(UserWarning, match=f"belongs to user {owner}"),
    ):
        assert kernel_store.load("a") is None


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("")
    with config.override("shardwise_cache_dir", str(tmp_path / "file" / "below")):
        kernel_store.save("a", b"code")
        assert kernel_store.load("a") is None


def test_a_folder_removed_meanwhile(place):
    kernel_store.save("a", b"code")
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
    kernel_store.save("b", b"code")
    assert kernel_store.load("a") is None


def test_the_oldest_files_go_first(place):
    for i, origin in enumerate("abcd"):
        kernel_store.save(origin, bytes(1000))
        (newest,) = [f for f in place.iterdir() if f.stat().st_mtime > 10_000]
        os.utime(newest, (1000 + i, 1000 + i))
    (place / "unfinished.o.1.ab").write_text("")
    os.utime(place / "unfinished.o.1.ab", (1000, 1000))
    store = kernel_store._store()
    assert store is not None
    store.prune(2500)
    assert [kernel_store.load(o) is not None for o in "abcd"] == [False, False, True, True]
    assert len(list(place.iterdir())) == 2
    store.prune(0)
    assert not list(place.iterdir())


def test_many_writers(place):
    def write() -> None:
        for i in range(50):
            kernel_store.save(f"{i % 5}", bytes([i % 5]) * 1000)
            code = kernel_store.load(f"{i % 5}")
            assert code is None or code == bytes([i % 5]) * 1000

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(place.iterdir())) == 5


def test_the_folder_follows_the_options(tmp_path, monkeypatch):
    none = dict(
        shardwise_cache=True,
        jax_enable_compilation_cache=True,
        shardwise_cache_dir=None,
        jax_compilation_cache_dir=None,
    )
    with contextlib.ExitStack() as settings:  # whatever this run was given
        for name, value in none.items():
            settings.enter_context(config.override(name, value))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert kernel_store.folder() == str(tmp_path / "shardwise")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        assert kernel_store.folder() == str(Path.home() / ".cache" / "shardwise")
        with config.override("jax_compilation_cache_dir", str(tmp_path)):
            assert kernel_store.folder() == str(tmp_path / "shardwise")
            with config.override("shardwise_cache_dir", "~/mine"):
                assert kernel_store.folder() == str(Path.home() / "mine")
            with config.override("shardwise_cache", False):
                assert kernel_store.folder() is None
            with config.override("jax_enable_compilation_cache", False):
                assert kernel_store.folder() is None
        with config.override("jax_compilation_cache_dir", "gs://bucket/cache"):
            assert kernel_store.folder() == str(Path.home() / ".cache" / "shardwise")


@pytest.mark.skipif(not llvm.available(), reason="nothing can be compiled here")
def test_code_from_the_folder_is_run(place):
    import ctypes

    def answer(number: int) -> int:
        return llvm.compile_function("answer", ANSWER % number).as_ctypes(ctypes.CFUNCTYPE(ctypes.c_int64))()

    assert answer(41) == 41
    (file,) = place.iterdir()
    before = file.stat().st_ino
    assert answer(41) == 41
    assert file.stat().st_ino == before
    assert answer(42) == 42
    assert len(list(place.iterdir())) == 2
    file.write_bytes(file.read_bytes()[:-1])
    assert answer(41) == 41


def test_processes_share_the_folder(place):
    if not llvm.available():
        pytest.skip("nothing can be compiled here")
    program = """
import sys, ctypes
from shardwise.runtime.machine import llvm
print(llvm.compile_function("answer", sys.argv[1]).as_ctypes(ctypes.CFUNCTYPE(ctypes.c_int64))(), "llvmlite" in sys.modules)
"""
    kept = processor.processor_kind() is not None and sys.platform == "linux"
    for known in ("False", "True") if not kept else ("True", "False"):  # what is kept needs no compiler
        env = os.environ | {"SHARDWISE_CACHE_DIR": str(place), "SHARDWISE_CACHE": "1"}
        command = [sys.executable, "-c", program, ANSWER % 43]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == ["43", known if kept else "True"], done.stderr
    assert len(list(place.iterdir())) == (2 if kept else 1)


def test_libraries_are_kept_whole(place, tmp_path):
    assert kernel_store.library("a", str(tmp_path / "a")) is None
    for number, name in enumerate("abc"):
        (tmp_path / name).write_text(f"lib {name}" * 100_000)
        kernel_store.keep_library(name, str(tmp_path / name), lambda copy: True)
        os.utime(place / f"{name}.so", (1000 + number, 1000 + number))
    kept = kernel_store.library("b", str(tmp_path / "b"))
    assert kept is not None and Path(kept).read_text() == "lib b" * 100_000
    kernel_store.keep_library("a", str(tmp_path / "a"), lambda copy: True)
    assert {f.name for f in place.iterdir()} == {"a.so", "b.so"}  # c was not used
    kernel_store.keep_library("d", str(tmp_path / "no such file"), lambda copy: True)
    assert len(list(place.iterdir())) == 2
    seen = []
    kernel_store.keep_library("d", str(tmp_path / "c"), lambda copy: bool(seen.append(Path(copy).read_text())))
    assert seen == ["lib c" * 100_000] and len(list(place.iterdir())) == 2  # it did not pass
    (place / "a.so").chmod(0o666)
    assert kernel_store.library("a", str(tmp_path / "a")) is None


@pytest.mark.parametrize("damage", ["flipped", "short", "long", "other"])
def test_damaged_libraries_are_removed(place, tmp_path, damage):
    content = os.urandom(700_001)
    (tmp_path / "one").write_bytes(content)
    kernel_store.keep_library("one", str(tmp_path / "one"), lambda copy: True)
    file = place / "one.so"
    at = len(content) - 7
    file.write_bytes(
        {
            "flipped": content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :],
            "short": content[:-1],
            "long": content + b"?",
            "other": bytes(len(content)),
        }[damage]
    )
    assert kernel_store.library("one", str(tmp_path / "one")) is None
    assert not file.exists()


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, (1 << 20) + 1, (3 << 20) - 1])
def test_files_are_compared_to_the_last_byte(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "one").write_bytes(content)
    for name, other in {"same": content, "last": content[:-1] + bytes([content[-1] ^ 1])}.items():
        (tmp_path / name).write_bytes(other)
        with (tmp_path / "one").open("rb") as a, (tmp_path / name).open("rb") as b:
            assert kernel_store._equal(a, b, size) is (name == "same")
