"""The cases: each call of a copy on each kind of file, with each plausible errno."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, NamedTuple

from integration.harness.supervise import KILL, Fault, Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Errnos with which a disk, a network file system or an exhausted kernel may fail any call.
ANY = (errno.EIO, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
DENIED = (errno.EACCES, errno.EPERM)
FULL = (errno.ENOSPC, errno.EDQUOT)
OPENED = (errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EBUSY, errno.ENOENT)
UNABLE = (errno.EOPNOTSUPP, errno.EINVAL)
GONE = (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOBUFS, errno.EINTR)
READ_ONLY = (errno.EROFS,)

OPEN = ANY + DENIED + OPENED
CREATE = ANY + DENIED + FULL + READ_ONLY
WRITE = (*ANY, *FULL, errno.EPERM, errno.EROFS, errno.EINTR, errno.EAGAIN, errno.EFBIG)
READ = (*ANY, errno.EINTR, errno.EAGAIN, errno.EACCES)
LOCK = (errno.EINTR, errno.ENOLCK, errno.EAGAIN, errno.EIO, *UNABLE)
LOOK = ANY + DENIED
CHANGE = ANY + DENIED + FULL + READ_ONLY + UNABLE

#: Errnos by call. A call that is not listed gets those of ANY.
ERRNOS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("open", "openat", "openat2"), OPEN),
    **dict.fromkeys(("mkdir", "mkdirat", "symlinkat"), CREATE),
    "linkat": (*CREATE, errno.EMLINK, errno.EOPNOTSUPP),
    **dict.fromkeys(("renameat", "renameat2"), (*CREATE, errno.EXDEV, errno.EBUSY, errno.ENOENT)),
    **dict.fromkeys(("unlink", "unlinkat"), (*LOOK, *READ_ONLY, errno.EBUSY, errno.ENOENT)),
    **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), WRITE),
    **dict.fromkeys(("read", "pread64", "readv", "preadv"), READ),
    **dict.fromkeys(("fsync", "fdatasync", "syncfs"), (*ANY, *FULL, errno.EINTR, errno.EROFS)),
    **dict.fromkeys(("flock", "fcntl"), LOCK),
    **dict.fromkeys(("ftruncate", "fallocate"), (*WRITE, *UNABLE)),
    **dict.fromkeys(("copy_file_range", "sendfile"), (*WRITE, *UNABLE, errno.EXDEV)),
    **dict.fromkeys(("fchmod", "fchmodat", "fchown", "fchownat", "utimensat"), CHANGE),
    **dict.fromkeys(("fsetxattr", "fremovexattr"), (*CHANGE, errno.E2BIG, errno.ERANGE)),
    **dict.fromkeys(("fgetxattr", "flistxattr"), (*LOOK, errno.ERANGE, *UNABLE)),
    **dict.fromkeys(("stat", "lstat", "statx", "newfstatat"), (*LOOK, errno.ENOENT)),
    **dict.fromkeys(("readlink", "readlinkat"), (*LOOK, errno.ENOENT)),
    "getdents64": (*LOOK, errno.ENOENT),
    "ioctl": (errno.ENOTTY, errno.EOPNOTSUPP, errno.EIO, errno.EXDEV, errno.ENOSPC),
    "fadvise64": (errno.EINVAL, errno.EIO),
    "lseek": (errno.EIO, errno.EINVAL, errno.ESTALE),
}
SOCKET = "socket"
#: Kinds of files that a copy only reads. Their calls get no errno of full or read-only storage.
READ_PLACES = ("source folder", "source file", "above", "proc")
#: Errnos that mean "try again". If all calls failed with such an errno, no program could end.
PASSING = (errno.EINTR, errno.EAGAIN)
#: Calls that create files if they open for writing.
OPENS = ("open", "openat", "openat2")


class Case(NamedTuple):
    """One fault in the copy of one scene."""

    scene: str
    fault: Fault

    @property
    def says_removed(self) -> bool:
        """True if the failed call reports that an existing entry does not exist.

        No run can report such an entry as left over. The sweep by age finds and removes it.
        """
        return self.fault.key.call.startswith("unlink") and self.fault.name == "ENOENT"

    def __str__(self) -> str:
        """Write the case in the form that :func:`parse` reads."""
        fault = self.fault
        place = fault.key.place.replace(" ", "-")
        stays = "+" if fault.stays else ""
        return f"{self.scene}/{fault.key.call}/{place}/{fault.nth}{stays}/{fault.name}"


def parse(text: str) -> Case:
    """Parse a case in the form of :meth:`Case.__str__`.

    :raises ValueError: for any other text.
    """
    scene, call, place, nth, name = text.split("/")
    code = KILL if name == "KILL" else getattr(errno, name, None)
    if code is None:
        raise ValueError(f"no errno {name}")
    key = Key(call, place.replace("-", " "))
    return Case(scene, Fault(key, int(nth.rstrip("+")), code, stays=nth.endswith("+")))


def errnos(key: Key) -> tuple[int, ...]:
    """Return the errnos with which a call on a kind of file may fail."""
    if key.place == SOCKET:
        return GONE
    found = ERRNOS.get(key.call, ANY)
    if key.place in READ_PLACES:
        return tuple(code for code in found if code not in (*FULL, *READ_ONLY))
    if key.call in OPENS:
        return (*found, *FULL, *READ_ONLY)
    return found


def moments(count: int) -> list[int]:
    """Return the numbers of the first, the middle and the last of ``count`` calls."""
    return sorted({1, (count + 1) // 2, count})


def of_scene(scene: str, counts: Mapping[Key, int], *, kills: bool = True) -> Iterator[Case]:
    """Return every case of a counted copy.

    There is a case for each errno at the first, at the middle and at the last call of a kind. There
    is also a case in which all calls from the middle call on fail with the errno, unless the errno
    means "try again". There is a case with a kill at each of these three calls.
    """
    for key in sorted(counts):
        count = counts[key]
        for nth in moments(count):
            for code in errnos(key):
                yield Case(scene, Fault(key, nth, code))
            if kills:
                yield Case(scene, Fault(key, nth, KILL))
        for code in errnos(key):
            if code not in PASSING:
                yield Case(scene, Fault(key, (count + 1) // 2, code, stays=True))


def sample(cases: Iterable[Case], count: int, seed: int) -> list[Case]:
    """Draw ``count`` cases at random. Each kind of call is drawn equally often.

    A draw from all cases would mostly hit the calls that have many errnos.
    """
    chance = random.Random(seed)
    kinds: dict[tuple[str, Key], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.scene, case.fault.key), []).append(case)
    for each in kinds.values():
        chance.shuffle(each)
    order = sorted(kinds)
    chance.shuffle(order)
    drawn: list[Case] = []
    while len(drawn) < count and any(kinds.values()):
        for kind in order:
            if kinds[kind] and len(drawn) < count:
                drawn.append(kinds[kind].pop())
    return sorted(drawn, key=str)
