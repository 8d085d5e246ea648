"""Copies by ``xrdcp --tpc only`` between real XRootD servers, with faults in dray's program.

The destination's server starts ``dray-xrootd-tpc`` for each copy. In these scenes it starts a
script, which puts that program under supervision while a fault is armed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.errno_sweep.scenes import LEASE_HELD, RUN_SECONDS, Data, Places, Ran, until_free
from integration.harness import tree
from integration.harness.supervise import KILL, LAUNCHER, Supervisor
from integration.xrootd import beside
from integration.xrootd.files import WRAPPER, hide
from integration.xrootd.servers import HERE, PROGRAM, SHIM, compile_loopback, copy_programs, give
from integration.xrootd.servers import Scene as Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from integration.harness.program import Bench

SHORT_WAIT = Path(__file__).with_name("short_wait.c")
NAME = "large"
#: Settings for objects as small as in the other scenes, so that the file has several objects.
CONFIG = ("object_bytes = 262144", "pool_bytes = 8388608", "keep_time = true")
#: Content of the placeholder that the server makes before it starts the copy program. The
#: placeholder remains if the copy program is killed.
EMPTY = (0, tree.hash_file(Path(os.devnull)))
#: The server's message about a program that a signal has ended.
SIGNALS = re.compile(r"killed by signal (\d+)")
HELD_WORDS = "another transfer is writing to the destination"
#: Maximum seconds until a server notices that its program has ended.
NOTICE_SECONDS = 10.0


class XrootdCopy:
    """A third-party copy of one file."""

    def __init__(self, bench: Bench, data: Data, name: str, options: Mapping[str, Any]) -> None:
        """Start the servers.

        :param options: ``hides``: the sink's server hides the placeholder. ``beside``: a dray
            endpoint beside the source's server sends the file.
        :raises FileNotFoundError: if the host has no XRootD, or if dray's plug-ins are not built.
        """
        if shutil.which("xrootd") is None:
            raise FileNotFoundError("no program xrootd; run make setup-xrootd")
        self.name = name
        self.hides: bool = options.get("hides", False)
        self.number = 0
        # Use a new folder, because the servers' user must be able to enter it.
        self.folder = Path(tempfile.mkdtemp(prefix="dray-", dir=os.environ.get("DRAY_TEST_DIR")))
        self.folder.chmod(0o755)
        built = bench.program.parent
        programs = self.folder / "programs"
        copy_programs(programs, [PROGRAM, SHIM], built)
        shutil.copy(LAUNCHER, programs / LAUNCHER.name)
        self.place = Place(self.folder, compile_loopback(self.folder), programs)
        give(self.folder)
        self.short_wait = self.folder / "short_wait.so"
        flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
        subprocess.run(["cc", *flags, "-o", self.short_wait, SHORT_WAIT], check=True)
        self.script = self.folder / "tpc"
        self.source = self.place.server("source", tpc="pgm /usr/bin/xrdcp --server")
        self.data = self._source_data(data)
        config = list(CONFIG)
        self.dray = None
        if options.get("beside"):
            self.dray = beside.serve(self.place, self.source.data, bench.program)
            config += beside.settings(self.place, self.dray, f"{HERE}:{self.source.port}")
        self.config = self.folder / "tpc.toml"
        self.config.write_text("\n".join([*config, ""]), encoding="utf-8")
        lines = []
        if self.hides:
            shutil.copy(built / WRAPPER, self.folder / WRAPPER)
            lines.append(hide(self.place))
        self._write_script([])
        self.sink = self.place.server("sink", tpc=f"pgm {self.script}", lines=lines)
        self.supervisor = Supervisor(Places(self.folder / "none", self.sink.data, self.folder))
        # The program runs as the servers' user.
        self.supervisor.path.parent.chmod(0o711)
        self.supervisor.path.chmod(0o666)

    def _source_data(self, data: Data) -> Data:
        """Give the source's server the large file, with a time of whole seconds, as in XRootD."""
        one = copy(data)
        one.source = self.source.path(NAME)
        shutil.copyfile(data.source / "m" / NAME, one.source)
        one.source.chmod(0o644)
        os.utime(one.source, (1_600_000_000, 1_600_000_000))
        give(one.source)
        one.wanted = tree.describe(one.source)
        (entry,) = one.wanted.values()
        one.allowed = {b"": {(entry.size, entry.content)}}
        if not self.hides:
            one.allowed[b""].add(EMPTY)
        return one

    def _write_script(self, wrap: list[str]) -> None:
        """Write the script that the server starts. It runs the program with the prefix ``wrap``."""
        programs = self.place.programs
        # The servers' user may not be able to run the Python of the tests.
        python = shutil.which("python3", path=os.defpath) or sys.executable
        words = [python, *wrap[1:]] if wrap else []
        words = [str(programs / LAUNCHER.name) if each == str(LAUNCHER) else each for each in words]
        words += [str(programs / PROGRAM), "--config", str(self.config)]
        fresh = self.script.with_suffix(".new")
        fresh.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n', encoding="utf-8")
        fresh.chmod(0o755)
        fresh.rename(self.script)

    def top(self) -> Path:
        """Return the destination folder."""
        return self.sink.path(f"case{self.number}")

    def copied(self) -> Path:
        """Return the path of the copied file."""
        return self.top() / NAME

    def begin(self) -> None:
        """Make the destination folder, and start servers that have ended."""
        self.number += 1
        self.top().mkdir()
        give(self.top())
        for server in (self.source, self.sink):
            if server.process is None or not server.process.is_running():
                server.start()

    def _copy(self, wrap: list[str]) -> Ran:
        # Forget servers where dray did not answer in an earlier case.
        for known in self.sink.admin.rglob("dray-deaf-servers"):
            known.unlink()
        self._write_script(wrap)
        before = len(self.sink.said())
        options = ["--force"] if self.copied().exists() else []
        ends = [self.source.at(NAME), self.sink.at(f"{self.top().name}/{NAME}")]
        command = ["xrdcp", "--nopbar", "--tpc", "only", *options, *ends]
        client = self.place.begin(*command, env={"LD_PRELOAD": str(self.short_wait)})
        faults = []
        try:
            ended = client.wait(RUN_SECONDS)
        except TimeoutError as error:
            return Ran(None, "hang", str(error), RUN_SECONDS, ("a hang",))
        until = time.monotonic() + NOTICE_SECONDS
        while self.sink.jobs():
            if time.monotonic() > until:
                faults.append("the program outlives the copy")
                break
            time.sleep(0.01)
        log_text = self.sink.said()[before:]
        words = "\n".join([ended.out.strip(), ended.words.strip(), log_text.strip()])
        fault = self.supervisor.fault
        killed = "9" if fault is not None and fault.code == KILL else ""
        faults += [f"signal {each}" for each in SIGNALS.findall(log_text) if each != killed]
        if "panicked" in log_text:
            faults.append("a panic")
        assert self.sink.process is not None
        if not self.sink.process.is_running():
            faults.append("the server ended")
        if self.dray is not None and not self.dray.is_running():
            faults.append("the dray beside the source ended")
        is_held = ended.code != 0 and HELD_WORDS in words
        return Ran(ended.code, LEASE_HELD if is_held else "", words, ended.seconds, tuple(faults))

    def run(self) -> Ran:
        """Copy with the program under supervision."""
        return self._copy(self.supervisor.wrap)

    def rerun(self) -> Ran:
        """Copy without a fault."""
        return until_free(lambda: self._copy([]))

    def end(self) -> None:
        """Remove the destination."""
        shutil.rmtree(self.top(), ignore_errors=True)

    def renew(self) -> None:
        """End the destination's server. The next case starts it again."""
        self.sink.kill()

    def close(self) -> None:
        """End every process, and remove the servers' folder."""
        self.place.close()
        if self.dray is not None:
            self.dray.kill()
        self.supervisor.close()
        shutil.rmtree(self.folder, ignore_errors=True)
