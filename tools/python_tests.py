"""Run pytest, then run the tests that failed a second time, alone.

    python tools/python_tests.py ARGUMENTS OF PYTEST

On a busy host a test can miss a time limit because other tests use the processors. Such a test
passes when it runs alone, and the run then succeeds and names the test. A test that fails twice
fails the run. If many tests fail, the busy host is not the cause, and no test runs again.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

#: Largest number of failed tests that run again.
RERUN_MAX = 8
#: Exit code of pytest if tests ran and some of them failed.
TESTS_FAILED = 1


def pytest(arguments: list[str], cache: Path) -> int:
    """Run pytest with an empty cache folder of its own and return its exit code."""
    command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={cache}"]
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except BaseException:
            # Let pytest stop the servers of its tests.
            process.terminate()
            raise


def failed_tests(cache: Path) -> list[str]:
    """Return the identifiers of the tests that failed in the last run with this cache folder."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def run(arguments: list[str], cache: Path) -> int:
    """Run the tests, and run the failed tests again; return the exit code of the whole run."""
    code = pytest(arguments, cache)
    failed = failed_tests(cache)
    if code != TESTS_FAILED or not 0 < len(failed) <= RERUN_MAX:
        return code
    print(f"\nFailed tests: {len(failed)}. They run again without other tests.", flush=True)
    again = pytest(["-n", "0", "-v", *failed], cache)
    if again == 0:
        print("Failed beside other tests, and passed alone:")
        print("\n".join(f"  {test}" for test in failed))
    return again


def main() -> int:
    """Run pytest with the arguments of the command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="dray-pytest-cache-") as folder:
        return run(sys.argv[1:], Path(folder))


if __name__ == "__main__":
    sys.exit(main())
