"""The FTS service as a process, and the stock client of FTS."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from integration.harness.airflow import free_port
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dray.testing.endpoints import Endpoint

__all__ = ["CLIENT", "Face", "has_client", "run_client"]

Json: TypeAlias = Any
CLIENT = ROOT / ".tools" / "fts"
PYTHON_PATH = (ROOT / "engine" / "python", ROOT / "plugins" / "fts")
READY_SECONDS = 30.0
END_SECONDS = 60.0
FINAL = ("FINISHED", "FAILED", "CANCELED", "FINISHEDDIRTY")


def has_client() -> bool:
    """Return true if the stock client is installed, and its library M2Crypto too."""
    python = CLIENT / "bin" / "python"
    if not python.exists():
        return False
    done = subprocess.run(
        [python, "-c", "import fts3.rest.client.easy"], capture_output=True, check=False
    )
    return done.returncode == 0


def run_client(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the stock client, without the environment and the files of the user."""
    return subprocess.run(
        [CLIENT / "bin" / program, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )


@dataclass(frozen=True)
class Answer:
    """An answer of the service."""

    code: int
    json: Json
    headers: Mapping[str, str]


class Face:
    """A process of the FTS service, with its files in a folder of the test.

    :param ends: endpoints by name. The URLs ``davs://NAME.example`` belong to the root ``data``.
        The first endpoint checks tokens.
    :param pems: files with certificate and key: ``server``, and one for each user.
    """

    def __init__(
        self,
        folder: Path,
        ends: Mapping[str, Endpoint],
        ca: Path,
        pems: Mapping[str, Path],
        more: str = "",
    ) -> None:
        """Write the configuration. :meth:`start` starts the process."""
        self.folder, self.ends, self.ca, self.pems = folder, ends, ca, pems
        folder.mkdir()
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.config = folder / "fts.toml"
        parts = [
            f'listen = "127.0.0.1:{self.port}"\nname = "fts.example"\nvo = "dteam"',
            f'state = "{folder / "state"}"\nadministrators = ["root"]',
            f'[tls]\ncertificate = "{pems["server"]}"\nkey = "{pems["server"]}"',
            f'client_ca = "{ca}"\n[tokens]\nendpoint = "{next(iter(ends))}"',
            "[limits]\npoll_seconds = 0.1",
        ]
        for name, end in ends.items():
            for owner in ("alice", "bob", "root"):
                token = folder / f"{name}-{owner}"
                token.write_text(end.token(subject=owner, lifetime="12h"))
                token.chmod(0o600)
            parts.append(
                f'[[endpoint]]\nname = "{name}"\nurl = "{end.url}"\npin = "{end.key}"\n'
                f'token_file = "{folder}/{name}-{{owner}}"'
            )
            parts.append(
                f'[[prefix]]\nurl = "davs://{name}.example"\nendpoint = "{name}"\npath = "/data"'
            )
        for owner in ("alice", "bob", "root"):
            subject = f"/DC=org/DC=dray/CN={owner}"
            parts.append(f'[[user]]\nsubject = "{subject}"\nowner = "{owner}"')
        self.config.write_text("\n".join(parts) + "\n" + more, encoding="utf-8")

    # --- the process ------------------------------------------------------------------------------

    def start(self) -> Face:
        """Start the service, and wait until it answers."""
        self._starts += 1
        log = self.folder / f"{self._starts:03}.log"
        path = ":".join([*map(str, PYTHON_PATH), os.environ.get("PYTHONPATH", "")])
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dray_fts", "--config", self.config],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONPATH": path},
            )
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                if self.ask("GET", "/", user=None).code == 200:
                    return self
            except httpx.HTTPError:
                assert self._process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the service, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def memory(self) -> int:
        """Return the largest memory of the process so far, in bytes."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) << 10

    def stop(self) -> int:
        """Stop the service as a service manager does. Return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def close(self) -> None:
        """End the process if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def said(self) -> str:
        """Return what all processes have written."""
        logs = sorted(self.folder.glob("*.log"))
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    # --- calls ------------------------------------------------------------------------------------

    def ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        user: str | None = "alice",
        token: str | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """Make a call with a user's certificate, or with a token."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if user is not None and token is None:
            context.load_cert_chain(self.pems[user])
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        content = raw if body is None else json.dumps(body).encode()
        with httpx.Client(verify=context, timeout=60, trust_env=False) as client:
            answer = client.request(method, self.url + path, content=content, headers=headers)
        try:
            found = answer.json()
        except ValueError:
            found = answer.text
        return Answer(answer.status_code, found, answer.headers)

    def tls(self, **keys: Path) -> None:
        """Add keys to the section [tls] of the configuration. The service must not run."""
        text = self.config.read_text(encoding="utf-8")
        lines = "".join(f'{key} = "{path}"\n' for key, path in keys.items())
        self.config.write_text(text.replace("[tls]\n", f"[tls]\n{lines}"), encoding="utf-8")

    def connected(self, user: str) -> httpx.Client:
        """Return a client with a user's certificate. Its calls use one connection."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.pems[user])
        return httpx.Client(base_url=self.url, verify=context, timeout=60, trust_env=False)

    def submit(self, files: Sequence[Json], user: str = "alice", **params: Json) -> str:
        """Submit a job. Return its id."""
        answer = self.ask("POST", "/jobs", {"files": files, "params": params}, user=user)
        assert answer.code == 200, answer
        return str(answer.json["job_id"])

    def wait(self, job_id: str, seconds: float = END_SECONDS, user: str = "alice") -> Json:
        """Wait until a job has ended. Return the job with its files."""
        fields = "file_id,file_state,reason,source_surl,start_time,finish_time,filesize"
        until = time.monotonic() + seconds
        while True:
            answer = self.ask("GET", f"/jobs/{job_id}?files={fields},file_metadata", user=user)
            assert answer.code == 200, answer
            if answer.json["job_state"] in FINAL:
                return answer.json
            assert time.monotonic() < until, f"{answer.json}\n{self.said()}"
            time.sleep(0.1)

    def run(
        self, program: str, *words: str | Path, user: str = "alice"
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the stock client with a user's certificate."""
        pem = self.pems[user]
        options: list[str | Path] = ["-s", self.url, "--cert", pem, "--key", pem]
        options += ["--capath", self.ca]
        return run_client(program, *options, *words)

    def python(self, text: str, user: str = "alice", seconds: float = 120.0) -> Json:
        """Run a program with the Python of the stock client. Return the JSON that it prints.

        The program can use the client's module ``easy`` and an open ``context`` of this user.
        """
        pem = self.pems[user]
        head = (
            "import json, sys\nimport fts3.rest.client.easy as easy\n"
            f"context = easy.Context({self.url!r}, {str(pem)!r}, {str(pem)!r}, "
            f"capath={str(self.ca)!r})\n"
        )
        done = subprocess.run(
            [CLIENT / "bin" / "python", "-c", head + text],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
