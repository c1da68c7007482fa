"""The user behind sudo: COMMAND runs as them, and what is written belongs to them."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

#: What sudo tells of itself; COMMAND does not run under sudo any more.
SUDO_VARIABLES: Final = ("SUDO_COMMAND", "SUDO_GID", "SUDO_UID", "SUDO_USER", "SUDO_HOME")


class Invoker(NamedTuple):
    """Who typed ``sudo stackhound``. ``name`` is empty when the user database does not know them."""

    uid: int
    gid: int
    name: str
    home: str

    def own_directory(self, directory: Path) -> None:
        """Give a directory and the files in it to this user. A link is given away itself, never what it points to."""
        for path in (directory, *directory.iterdir()):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def become(self) -> None:
        """Turn this process into theirs, for good."""
        if self.name:
            os.initgroups(self.name, self.gid)
        else:
            os.setgroups([self.gid])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def environment(self) -> dict[str, str]:
        """The environment as they would have it, as far as sudo left it."""
        kept = {name: value for name, value in os.environ.items() if name not in SUDO_VARIABLES}
        if self.name:
            kept.update(USER=self.name, LOGNAME=self.name)
        if self.home:
            kept.update(HOME=self.home)
        return kept


def find_invoker() -> Invoker | None:
    """The user who called sudo; None without sudo, or when root did."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (uid.isdecimal() and gid.isdecimal()) or int(uid) == 0:
        return None
    try:
        entry = pwd.getpwuid(int(uid))
    except KeyError:
        return Invoker(int(uid), int(gid), "", "")
    return Invoker(int(uid), int(gid), entry.pw_name, entry.pw_dir)
