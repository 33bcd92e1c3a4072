"""Object code made callable without LLVM, which takes longer to load than most programs take to compile.

Comes in: an object file as LLVM writes it for x86-64 Linux in its large code model, where each reference from section to section
is an absolute address of 64 bits. Goes out: `MachineCode`, which knows the addresses of its functions. Whatever else such files can
hold raises `Unfamiliar`; LLVM's own loader takes those.

A draft is loaded behind switches: each of its functions is called through two instructions, which count the call and jump to the address
in a switch. So better code takes over where its callers, and other threads, hold the first address.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from collections.abc import Callable
from typing import Protocol

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_LITTLE_64 = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_CONTENT, _SYMBOLS, _ADDENDS, _UNWINDING = 1, 2, 4, 0x70000001  # kinds of sections
_WRITTEN, _LOADED, _RUN, _THREADS = 1, 2, 4, 0x400  # flags of sections
_ABSOLUTE = 1  # the relocation: 64 bits, symbol plus addend
_FUNCTION = 2  # a kind of symbol
_NOWHERE, _RESERVED = 0, 0xFF00  # section numbers of symbols that are defined elsewhere, or are no places
_READ, _EXECUTE = 1, 4  # of mprotect

_JUMP = struct.Struct("<HiHi")  # count down, then jump: `dec dword [rip + i]`, `jmp qword [rip + i]`
_COUNT_DOWN, _JUMP_TO = 0x0DFF, 0x25FF
_SPACING = 16  # bytes from switch to switch, and from jump to jump: the address, then the calls that are left to count
_COUNTED = 8


class Unfamiliar(Exception):
    """An object file that holds something else than what is loaded here."""


class LoadedCode(Protocol):
    """Loaded machine code."""

    def address_of(self, name: str) -> int:
        """The address of one of its functions."""
        ...


class _Pages:
    """Memory of `length` bytes at `base`, which goes when the object does; but as the interpreter ends, threads may still run code in it.

    An object of its own: weak references to one with a `__del__` give it to other threads while that runs.
    """

    __slots__ = ("base", "length")

    def __init__(self, base: int, length: int) -> None:
        self.base = base
        self.length = length

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:  # modules may be empty by then
        if not ending():
            _library().munmap(self.base, self.length)


class MachineCode:
    """Functions in memory that it keeps."""

    __slots__ = ("__weakref__", "_better", "_pages", "_switches", "addresses")

    def __init__(self, pages: _Pages | None = None) -> None:
        self.addresses: dict[str, int] = {}
        self._pages = pages
        self._switches: dict[str, int] = {}  # addresses, by function
        self._better: LoadedCode | None = None

    def address_of(self, name: str) -> int:
        """The address of a function; KeyError if there is none of that name."""
        return self.addresses[name]

    def put_switches(self, jumps: int, switches: int, calls: int) -> None:
        """Lead all functions over switches, whose jumps are written at `jumps`; they count down from `calls`."""
        for i, (name, address) in enumerate(self.addresses.items()):
            jump, switch = jumps + i * _SPACING, switches + i * _SPACING
            count = switch + _COUNTED
            # An offset is taken from the end of its instruction.
            text = _JUMP.pack(_COUNT_DOWN, count - jump - _JUMP.size // 2, _JUMP_TO, switch - jump - _JUMP.size)
            ctypes.memmove(jump, text, len(text))
            ctypes.c_uint64.from_address(switch).value = address
            ctypes.c_int32.from_address(count).value = calls
            self.addresses[name], self._switches[name] = jump, switch

    def calls_left(self) -> int:
        """How many calls of the function that was called most often are left to count; 0 or less: it was called as often as that."""
        return min(ctypes.c_int32.from_address(s + _COUNTED).value for s in self._switches.values())

    def give_way(self, better: LoadedCode) -> None:
        """Have other code called in place of this, from the next call of each function on."""
        self._better = better  # which lives as long as this
        for name, switch in self._switches.items():
            place = ctypes.c_uint64.from_address(switch)
            place.value = better.address_of(name)  # one store: others see the old or the new

    @property
    def replaced(self) -> bool:
        """Whether other code is called in its place."""
        return self._better is not None


def load_code(code: bytes, outside: Callable[[str], int], counted: int | None = None) -> MachineCode:
    """Bring the object file `code` into memory; `outside` gives the address of a function that it does not define. `counted`: behind
    switches, which count that many calls.

    Unfamiliar if something in it is not loaded here, OSError if the system does not let memory be run.
    """
    try:
        return _load_sections(code, outside, counted)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Unfamiliar(f"no whole object file: {error}") from None


def _load_sections(code: bytes, outside: Callable[[str], int], counted: int | None) -> MachineCode:
    mark, kind, machine, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
    if not mark.startswith(_LITTLE_64) or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise Unfamiliar("not an object file for x86-64")
    sections = [_SECTION.unpack_from(code, at + i * size) for i in range(count)]
    starts, pages, length = _place_sections(sections)
    if counted is not None:  # a page of jumps, and one of switches, which stays writable
        pages.append((length, mmap.PAGESIZE, _READ | _EXECUTE))
        length += 2 * mmap.PAGESIZE
    base = _memory(length)
    made = MachineCode(_Pages(base, length))
    image = bytearray(length)
    for number, start in starts.items():
        offset, nbytes = sections[number][4:6]
        image[start : start + nbytes] = _part(code, offset, nbytes)
    addresses = made.addresses
    places = {number: base + start for number, start in starts.items()}
    tables = {
        i: _symbols(code, s, sections, places, outside, addresses) for i, s in enumerate(sections) if s[1] == _SYMBOLS
    }
    for section in sections:
        if section[1] != _ADDENDS or section[7] not in starts:
            continue
        for place, info, addend in _RELOCATION.iter_unpack(_part(code, section[4], section[5])):
            if info & 0xFFFFFFFF != _ABSOLUTE:
                raise Unfamiliar(f"a relocation of kind {info & 0xFFFFFFFF}")
            symbol: int = info >> 32
            value: int = tables[section[6]][symbol] + addend
            struct.pack_into("<Q", image, starts[section[7]] + place, value)
    ctypes.memmove(base, bytes(image), length)
    if counted is not None:
        if len(addresses) * _SPACING > mmap.PAGESIZE:
            raise Unfamiliar(f"{len(addresses)} functions behind switches")
        made.put_switches(base + length - 2 * mmap.PAGESIZE, base + length - mmap.PAGESIZE, counted)
    for begin, nbytes, rights in pages:
        if nbytes and _library().mprotect(base + begin, nbytes, rights):
            raise OSError(ctypes.get_errno(), "the system does not let memory be run")
    return made


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
    library.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    library.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return library


def _memory(nbytes: int) -> int:
    """The address of pages of their own, which can be written."""
    if not nbytes:
        raise Unfamiliar("nothing to load")
    address = _library().mmap(None, nbytes, _READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no memory for machine code")
    return address


def _place_sections(sections: list[tuple[int, ...]]) -> tuple[dict[int, int], list[tuple[int, int, int]], int]:
    """Where each section that is loaded begins; pages of code, then of constants: begin, bytes and rights; bytes in all."""
    starts: dict[int, int] = {}
    pages: list[tuple[int, int, int]] = []
    at = 0
    for run, rights in ((True, _READ | _EXECUTE), (False, _READ)):
        begin = at
        for number, (_, kind, flags, _, _, size, _, _, alignment, _) in enumerate(sections):
            if not flags & _LOADED or kind == _UNWINDING or bool(flags & _RUN) != run or not size:
                continue
            if kind != _CONTENT or flags & (_WRITTEN | _THREADS) or alignment > mmap.PAGESIZE:
                raise Unfamiliar(f"a section of kind {kind} with flags {flags:x}")
            at = -(-at // max(alignment, 1)) * max(alignment, 1)
            starts[number] = at
            at += size
        at = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        pages.append((begin, at - begin, rights))
    return starts, pages, at


def _symbols(
    code: bytes,
    table: tuple[int, ...],
    sections: list[tuple[int, ...]],
    bases: dict[int, int],
    outside: Callable[[str], int],
    addresses: dict[str, int],
) -> list[int]:
    """The values of a table's symbols; functions that are defined here enter `addresses`."""
    texts = sections[table[6]]
    strings = _part(code, texts[4], texts[5])
    values: list[int] = []
    for name, kind, _, where, value, _ in _SYMBOL.iter_unpack(_part(code, table[4], table[5])):
        text = strings[name : strings.index(b"\0", name)].decode() if name else ""
        if where == _NOWHERE and text:
            values.append(outside(text))
        elif where in bases:
            values.append(bases[where] + value)
            if text and kind & 0xF == _FUNCTION:
                addresses[text] = values[-1]
        elif where == _NOWHERE or where >= _RESERVED or not sections[where][5] or sections[where][1] == _UNWINDING:
            values.append(0)  # the first one, the file's name, and what no code refers to
        else:
            raise Unfamiliar(f"a symbol in section {where}")
    return values


def _part(code: bytes, offset: int, nbytes: int) -> bytes:
    if offset + nbytes > len(code):
        raise Unfamiliar("the file ends early")
    return code[offset : offset + nbytes]
