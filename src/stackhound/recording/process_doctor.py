"""What a running process offers of its code: how each file of it unwinds, what names it, and what mends the rest.

Nothing is changed: mappings and files are read.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stackhound import _native
from stackhound.errors import PermissionMissing
from stackhound.profile.native_errors import native_errors
from stackhound.recording.doctor import Finding
from stackhound.recording.runtimes import lacks_frame_pointers, remedy_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Sections by what they are for, best first, and what is said of them.
UNWINDING: Final = {
    ".eh_frame": ".eh_frame",
    ".debug_frame": ".debug_frame",
    ".gopclntab": "Go's tables",
    ".data.rel.ro.gopclntab": "Go's tables",
}
NAMES: Final = {
    ".symtab": "its symbol table",
    ".gnu_debugdata": "its compressed symbol table",
    ".gopclntab": "Go's tables",
    ".data.rel.ro.gopclntab": "Go's tables",
}
EXPORTS: Final = ".dynsym"
LINES: Final = (".debug_info", ".zdebug_info", ".gopclntab", ".data.rel.ro.gopclntab")
DEBUG_DIRECTORY: Final = Path("/usr/lib/debug")
#: What the kernel maps into each process.
KERNELS_OWN: Final = frozenset({"[vdso]", "[vsyscall]"})
DPKG_S: Final = 10.0

REBUILD: Final = "build it with -fasynchronous-unwind-tables, or with -fno-omit-frame-pointer"
DEBUG_PACKAGE: Final = "install its debug symbols, or record with --debuginfod"


@dataclass(frozen=True)
class CodeFinding(Finding):
    """One file of a process, or the code that it made."""

    ranges: list[tuple[int, int]] = field(default_factory=list)  # addresses: first, and behind the last
    build_id: str = ""  # hex
    unwinding: str = ""  # by what; empty: nothing
    names: str = ""  # from where; empty: nowhere
    debug_file: str = ""  # empty: none


def examine_process(pid: int) -> list[CodeFinding]:
    """Look at every mapping of code, one finding a file, in the order of their addresses.

    Raises:
        NoSuchProcess: there is none.
        PermissionMissing: its mappings are hidden from this user.
    """
    with native_errors():
        found = _native.inspect_process(pid)
    if not found["mappings"]:
        message = f"the mappings of process {pid} cannot be read"
        raise PermissionMissing(message, "run with sudo; kernel threads have none")
    by_path: dict[str, list[dict[str, Any]]] = {}
    for mapping in found["mappings"]:
        by_path.setdefault(mapping["path"] if _is_file(mapping) else "", []).append(mapping)
    made = by_path.pop("", [])
    findings = [_examine_file(path, mappings) for path, mappings in by_path.items() if path not in KERNELS_OWN]
    return [*_name_packages(findings), *_examine_made_code(pid, made, found, by_path)]


def _is_file(mapping: dict[str, Any]) -> bool:
    path: str = mapping["path"]
    if path in KERNELS_OWN:
        return True
    is_memory = path.startswith(("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV", "/anon_hugepage"))  # noqa: S108
    return path.startswith("/") and not (is_memory and mapping["reason"])


def _examine_file(path: str, mappings: list[dict[str, Any]]) -> CodeFinding:
    first = mappings[0]
    ranges = [(mapping["start"], mapping["end"]) for mapping in mappings]
    if first["reason"]:
        return CodeFinding(path, "missing", first["reason"], "run with sudo", ranges)
    sections = first["sections"]
    unwinding = next((UNWINDING[name] for name in UNWINDING if name in sections), "")
    debug_file = _find_debug_file(path, first["build_id"], first["debug_link"])
    names = next((NAMES[name] for name in NAMES if name in sections), "its debug file" if debug_file else "")
    remedies = [REBUILD] if not unwinding else []
    remedies += [DEBUG_PACKAGE] if not names else []
    return CodeFinding(
        path,
        "degraded" if remedies else "ok",
        _describe(sections, unwinding, names, debug_file),
        "; ".join(remedies),
        ranges,
        first["build_id"],
        unwinding,
        names or ("what it exports" if EXPORTS in sections else ""),
        debug_file,
    )


def _describe(sections: list[str], unwinding: str, names: str, debug_file: str) -> str:
    has_lines = any(one in sections for one in LINES)
    exports = "names of what it exports" if EXPORTS in sections else "no names"
    return ", ".join(
        [
            f"unwinds by {unwinding}" if unwinding else "unwinds by frame pointers, if it has them",
            f"names from {names}" if names else exports,
            f"lines from {debug_file}" if debug_file else "lines" if has_lines else "no lines",
        ]
    )


def _find_debug_file(path: str, build_id: str, link: str) -> str:
    """By build-id, then by the name that the file gives; empty: there is none."""
    here = Path(path).parent
    candidates = [DEBUG_DIRECTORY / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"] if build_id else []
    if link:
        link = Path(link).name
        candidates += [here / ".debug" / link, DEBUG_DIRECTORY / here.relative_to("/") / link, here / link]
    return next((str(one) for one in candidates if one.is_file() and str(one) != path), "")


def _examine_made_code(
    pid: int, made: list[dict[str, Any]], found: dict[str, Any], paths: Iterable[str]
) -> Iterator[CodeFinding]:
    sources = [
        f"{found[key]:,} names in its {label}"
        for key, label in (("perf_map_names", "perf map"), ("jitdump_codes", "jitdump"))
        if found[key]
    ]
    if not made and not sources:
        return
    kibibytes = sum(mapping["end"] - mapping["start"] for mapping in made) >> 10
    paths = list(paths)
    lack = lacks_frame_pointers(paths, Path("/proc", str(pid)))
    remedies = [] if sources else [remedy_for(paths, pid)]
    if lack and sources:
        remedies.append(f"start it with {lack}")
    described = " and ".join(sources) or "neither a perf map nor a jitdump: no names"
    if lack:
        described += f", no frame pointers without {lack}: stacks end in it"
    yield CodeFinding(
        "code made at run time",
        "degraded" if remedies else "ok",
        f"{kibibytes:,} KiB, {described}",
        "; ".join(remedies),
        [(mapping["start"], mapping["end"]) for mapping in made],
        unwinding="" if lack else "frame pointers",
        names=" and ".join(sources),
    )


def _name_packages(findings: list[CodeFinding]) -> list[CodeFinding]:
    """Say which Debian package has the debug symbols, where dpkg knows the file."""
    wanted = [finding.subject for finding in findings if DEBUG_PACKAGE in finding.remedy]
    packages = _find_packages(wanted) if wanted else {}

    def with_package(finding: CodeFinding) -> CodeFinding:
        package = packages.get(finding.subject)
        if package is None or DEBUG_PACKAGE not in finding.remedy:
            return finding
        debug = "libc6-dbg" if package == "libc6" else f"{package}-dbgsym"
        return replace(finding, remedy=finding.remedy.replace(DEBUG_PACKAGE, f"sudo apt install {debug}"))

    return [with_package(finding) for finding in findings]


def _find_packages(paths: list[str]) -> dict[str, str]:
    """The Debian package of each file, as far as dpkg knows. Its list has paths from before /usr was merged, too."""
    if shutil.which("dpkg-query") is None:
        return {}
    asked = [*paths, *(path.removeprefix("/usr") for path in paths if path.startswith("/usr/"))]
    try:
        result = subprocess.run(
            ["dpkg-query", "-S", "--", *asked], capture_output=True, text=True, timeout=DPKG_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    owners = {}
    for line in result.stdout.splitlines():
        packages, _, path = line.rpartition(": ")
        owners[path] = packages.split(",")[0].split(":")[0]
    return {path: owner for path in paths if (owner := owners.get(path) or owners.get(path.removeprefix("/usr")))}
