"""Kernel names: one canonical name for pairing across runs and profilers, one short name for people.

The recorded name is always kept. Pairing uses the canonical name, in which only spelling is removed: whitespace and
`const`, mangling, the two spellings of anonymous namespaces, casts and suffixes of template integers, lambda
signatures, parameter lists that template arguments determine, and counters that compilers append per run. Functors
stay, so kernels that differ in their functor never share a canonical name.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable
from functools import cache, lru_cache
from zlib import crc32

_ANONYMOUS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_INTEGER_CAST = re.compile(r"\((?:bool|char|short|int|long|long long|unsigned(?: \w+){0,2}|signed char)\)(?=-?\d)")
_INTEGER_SUFFIX = re.compile(r"(?<=\d)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)
#: nsys: ``[lambda(char *, long) (instance 2)]``; Kineto and rocprof: ``{lambda(char*, long)#2}``.
_LAMBDA_NSYS = re.compile(r"\[lambda\(([^()]*)\) \(instance (\d+)\)\]")
_LAMBDA_DEMANGLED = re.compile(r"\{lambda\(([^()]*)\)#(\d+)\}")
_ROCM_SUFFIX = re.compile(r"(?: ?\[clone \.kd\]|\.kd)$")
#: Compilers number their kernels per compilation: triton_poi_fused_add_16, triton_red_fused_3, triton_mm_7, fusion_12,
#: nvfuser_12, myl0_12. A stage's number stands without an underscore before it, or behind other words.
_COMPILER_COUNTER = re.compile(
    r"^(triton_[a-z]+_fused(?:_.*?\D)??|triton_(?:mm|bmm|tem|addmm|conv\w*)(?:_.*?\D)??|(?:\w*_)?fusion|nvfuser(?:_\w*?\D)?|myl\d*)"
    r"_?\d+$"
)
#: Triton appends what each argument was specialised to: kernel_0d1d2d3de.
_TRITON_SPECIALISATION = re.compile(r"_(?=0)(?=(?:\d+e?[dc]){2})[\ddce]+$")
#: Addresses and hashes that a code generator puts into names (CuTe DSL, CUTLASS Python): new in every process.
_PER_RUN_HASH = re.compile(r"(?:_|@|at_)0x[0-9a-f]+|_(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,}(?=_|$)")
#: One copy or set has another name in each profiler: ``memcpy DtoD``, ``Memcpy DtoD (Device -> Device)``.
_COPY = re.compile(r"^memcpy(?:\s*([A-Za-z]+to[A-Za-z]+)\b|\s+(\w+)|\s*$)", re.IGNORECASE)
_SET = re.compile(r"^memset(?=\s|$)", re.IGNORECASE)
#: nsys writes a boolean template argument as ``(bool)1``.
_TRUE, _FALSE = re.compile(r"(?<=[<,( ])true(?=[>, )])"), re.compile(r"(?<=[<,( ])false(?=[>, )])")
_WORDS = re.compile(r"\b(?:const|void|volatile)\b")
#: A condition on template arguments, in the place of the return type.
_RETURN_TYPE = re.compile(r"^(?:typename )?std::enable_if<[^\n]*?>::type (?=[A-Za-z_])")

#: A word or a number of a template's arguments, and a lambda's number.
#: Namespaces are left out.
_WORD = re.compile(r"[A-Za-z_]\w*(?![\w]|::[A-Za-z_{])|[A-Za-z_]\w*(?=::\{lambda)|-?\b\d+|#\d+")
#: Wrappers around the functor that says what a PyTorch kernel does.
_WRAPPERS = """
anon lambda operator gpu_kernel_impl_nocast gpu_kernel_impl AUnaryFunctor BUnaryFunctor BinaryFunctor
TrivialOffsetCalculator LoadWithoutCast StoreWithoutCast
"""
_NOISE = frozenset(_WRAPPERS.split())
#: Namespaces that most kernels share.
_LIBRARY = ("at", "native", "{anon}", "detail", "std", "")
#: A display name lists at most this many words; more do not fit one table cell.
_MAX_WORDS = 4
_ARRAY = re.compile(r"std::array<char\*,\d+>")
#: More characters of one name than this make a sentence unreadable.
_LONGEST = 60


def canonical(name: str) -> str:
    """The name under which `name` is paired with the other run's; see the module's docstring."""
    text = demangled(_ROCM_SUFFIX.sub("", name.strip()))
    copy = _COPY.match(text)
    if copy:
        return f"memcpy {copy.group(1) or copy.group(2) or ''}".rstrip()
    if _SET.match(text):
        return "memset"
    text = _TRITON_SPECIALISATION.sub("", text)
    text = _COMPILER_COUNTER.sub(r"\1", text)
    text = _PER_RUN_HASH.sub("", text)
    if "(" not in text and "<" not in text:
        return text
    text = _RETURN_TYPE.sub("", text)
    text = _ANONYMOUS.sub("{anon}", text)
    text = _without_signatures(text)
    text = _LAMBDA_NSYS.sub(r"{lambda#\2}", text)
    text = _LAMBDA_DEMANGLED.sub(r"{lambda#\2}", text)
    text = _INTEGER_CAST.sub("", text)
    text = _INTEGER_SUFFIX.sub("", text)
    text = _WORDS.sub("", text)
    text = _TRUE.sub("1", _FALSE.sub("0", text))
    text = "".join(text.split())
    return _without_parameters(text) if "<" in text else text


def demangled(name: str) -> str:
    """`name` as C++ source spells it, if it is mangled and this machine has a C++ runtime; else as it is."""
    if not name.startswith("_Z"):
        return name
    demangle = _demangler()
    if demangle is None:
        return name
    status = ctypes.c_int()
    text = demangle(name.encode("utf-8", "surrogatepass"), None, None, ctypes.byref(status))
    try:
        return ctypes.string_at(text).decode("utf-8", "replace") if text and status.value == 0 else name
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@cache
def _demangler() -> Callable[..., int | None] | None:
    """The Itanium C++ ABI's own function, from the runtime that numpy and pyarrow need too."""
    for library in ("libstdc++.so.6", "libc++abi.dylib", "libc++abi.so.1", None):
        with contextlib.suppress(OSError, AttributeError):
            function = ctypes.CDLL(library).__cxa_demangle
            function.restype = ctypes.c_void_p
            function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            return function
    return None


_ADDRESS = re.compile(r"&\((?=[A-Za-z_])")


def _without_signatures(text: str) -> str:
    """`text` with the functions that are template arguments as nsys has them: ``&silu<float>`` instead of Kineto's
    ``&(float silu<float>(float const&))``."""
    at = 0
    while (found := _ADDRESS.search(text, at)) is not None:
        end = _closing(text, found.end() - 1)
        if end < 0:
            return text
        whole = text[found.end() : end]
        # The parameters are the last parentheses, and the return type ends at the last blank outside of brackets.
        depth, start, stop = 0, 0, len(whole)
        for place, character in enumerate(whole):
            if character == "(" and not depth and whole.endswith(")") and _closing(whole, place) == len(whole) - 1:
                stop = place
                break
            depth += (character in "<([{") - (character in ">)]}")
            start = place + 1 if character == " " and not depth else start
        name = whole[start:stop]
        text = f"{text[: found.start()]}&{name}{text[end + 1 :]}"
        at = found.start() + 1
    return text


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens there is closed; -1 where it is not."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    return -1


def _without_parameters(text: str) -> str:
    """`text` without any balanced ``(…)``; unbalanced (truncated) names keep what they have."""
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "(":
            depth += 1
        elif character == ")" and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept) if depth == 0 else text


_FUSED = re.compile(r"^triton_[a-z]+_fused_(.+)$")


def fused_words(name: str) -> list[str]:
    """The operators that Inductor lists in the canonical name of a kernel that it fused: ``mul``, ``silu``."""
    found = _FUSED.match(name)
    return [word for word in re.split(r"_+", found[1]) if word and not word.isdecimal()] if found else []


def shortened(name: str) -> str:
    """`name`, cut in the middle where it is too long for a sentence (mangled names run to a thousand characters)."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}"


@lru_cache(maxsize=1 << 16)
def display(name: str) -> str:
    """The short name of a canonical `name` for people.

    It depends on the name alone, so that it is the same in every report. Of a template's arguments it keeps what tells
    two kernels apart, and where that is too much, the first words and four digits of a hash of the whole.
    """
    head, _, arguments = name.partition("<")
    *spaces, base = head.split("(")[0].split("::")
    spaces = [space for space in spaces if space not in _LIBRARY]
    base = "::".join([*spaces[-1:], base]) or name
    if not arguments:
        return f"{base}{_mark(name)}" if "(" in head else base
    words = [word for word in _WORD.findall(_ARRAY.sub("", arguments)) if word not in _NOISE]
    named = [word for word in dict.fromkeys(words) if not word.startswith("#")]
    # Names before numbers: they say what a kernel does, and a narrow table cuts the rest.
    shown = sorted(named, key=lambda word: word.lstrip("-").isdigit())[:_MAX_WORDS]
    listed = f"<{', '.join(shown)}>" if shown else ""
    return f"{base}{listed}{'' if sorted(shown) == sorted(words) else _mark(name)}"


def _mark(name: str) -> str:
    return f"~{crc32(name.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
