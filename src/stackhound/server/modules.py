"""The files that a profile names, by what the front-end calls them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound import _native
from stackhound.formats.firefox.libraries import build_libraries
from stackhound.profile.metadata import read_int
from stackhound.server.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.profile import Profile

#: Kinds of objects that have no debug information in a file.
SCRIPT_KINDS: Final = frozenset({"python", "jit"})


class Function(NamedTuple):
    """A function at an address, as `_native.CodeReader.functions` tells it."""

    name: str
    file: str
    line: int
    column: int
    start: int
    size: int


class Module(NamedTuple):
    """A file of the profile.

    Attributes:
        kind: of its objects.
        path: where it was when it was recorded.
        build_id: in hexadecimal digits; empty: none.
    """

    kind: str
    path: str
    build_id: str


class Modules:
    """Answers for the files of one profile, as long as they are what they were."""

    def __init__(self, profile: Profile, debug_dirs: Sequence[Path]) -> None:
        self._code = _native.CodeReader([str(path) for path in debug_dirs])
        self._known = _by_key(profile)
        self._scripts = _scripts_by_path(profile)
        self._recorded_unix_ns = _recorded_unix_ns(profile)

    def find(self, debug_name: str, debug_id: str) -> Module:
        """The module that the front-end names so.

        Raises:
            Refused: the profile has none.
        """
        found = self._known.get((debug_name, debug_id))
        if found is None:
            raise Refused("the profile has no such file")
        return found

    def functions(self, module: Module, addresses: list[int]) -> list[list[Function]]:
        """The functions at each address, innermost first.

        Raises:
            Refused: the file cannot be read, or is another one by now.
        """
        with self._reading(module):
            found = self._code.functions(module.path, module.build_id, addresses)
        return [[Function(*function) for function in functions] for functions in found]

    def instructions(
        self, module: Module, start: int, size: int, *, whole: bool
    ) -> tuple[str, int, list[tuple[int, str]]]:
        """See `_native.CodeReader.instructions`.

        Raises:
            Refused: the file cannot be read, is another one by now, or has no code there.
        """
        with self._reading(module):
            return self._code.instructions(module.path, module.build_id, start, size, whole)

    def scripts(self, module: Module) -> set[str]:
        """The source files that the profile names in Python code, and in code that a process made."""
        return self._scripts.get((module.kind, module.path), set())

    def source_md5(self, module: Module, address: int, source: str) -> bytes | None:
        """See `_native.CodeReader.source_md5`."""
        with self._reading(module):
            return self._code.source_md5(module.path, module.build_id, address, source)

    @contextmanager
    def _reading(self, module: Module) -> Iterator[None]:
        if module.kind != "elf":
            raise Refused(f"{module.path} has no file that could be read")
        if not module.build_id and self._changed_since(module.path):
            raise Refused(f"{module.path} has changed since the recording")
        try:
            yield
        except _native.NativeError as error:
            raise Refused(error.args[1]) from error

    def _changed_since(self, path: str) -> bool:
        """Whether a file without a build-id is younger than the recording."""
        try:
            return Path(path).stat().st_mtime_ns > self._recorded_unix_ns
        except OSError:
            return False  # what is wrong with it shows when it is opened


def _by_key(profile: Profile) -> dict[tuple[str, str], Module]:
    libraries = build_libraries(profile)
    columns = [profile.texts("objects", name) for name in ("kind", "path", "build_id")]
    known: dict[tuple[str, str], Module] = {}
    for row, objects in zip(libraries.rows, libraries.objects, strict=True):
        module = Module(*(column[objects[0]] for column in columns))
        known.setdefault((row["debugName"], row["breakpadId"]), module)
    return known


def _scripts_by_path(profile: Profile) -> dict[tuple[str, str], set[str]]:
    """Source files of functions by (kind, path) of their object, where no debug information vouches for them."""
    kinds, paths = (profile.texts("objects", name) for name in ("kind", "path"))
    named: dict[tuple[str, str], set[str]] = {}
    functions = zip(profile.numbers("functions", "object").tolist(), profile.texts("functions", "file"), strict=True)
    for row, file in functions:
        if kinds[row] in SCRIPT_KINDS and file:
            named.setdefault((kinds[row], paths[row]), set()).add(file)
    return named


def _recorded_unix_ns(profile: Profile) -> int:
    metadata = profile.metadata
    start_ns, offset_ns = (read_int(metadata, "clock", key) for key in ("start_boottime_ns", "boot_to_unix_ns_start"))
    return 0 if start_ns is None or offset_ns is None else start_ns + offset_ns
