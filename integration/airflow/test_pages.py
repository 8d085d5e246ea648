"""The pages of dray in a real Airflow, in a real browser."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from integration.airflow.conftest import MIB
from integration.endpoint.audit import serious_faults
from integration.endpoint.browser import Browser, needs_browser
from integration.endpoint.raw import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.airflow.conftest import Scene, World
    from integration.harness.airflow import Run

pytestmark = [pytest.mark.slow, pytest.mark.server]

RATE = 2 * MIB
SIZE = 48 * MIB
#: Names that are a script in HTML, that reverse the order of the text after them, that have a line
#: break, and that are as long as a file system permits.
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "run\u202etxt.exe",
    "two\nlines",
    "<b>" + "w" * 252,
)
FRAME = "document.querySelector('iframe')?.contentDocument"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser, which all tests of this file use in turn."""
    with tempfile.TemporaryDirectory(prefix="dray-browser-") as name, Browser(Path(name)) as one:
        yield one


def log_in(chromium: Browser, world: World) -> None:
    """Give the browser the session of the administrator, as Airflow's login page does."""
    chromium.complaints()
    chromium.resize(1280, 900)
    # A page of the same origin, for which the browser can store the cookie of the session.
    chromium.open(f"{world.airflow.url}/dray/page.css")
    script = "document.cookie = `_token=${arguments[0]}; path=/`"
    chromium.run(script, world.airflow.token("admin"))


def begin(scene: Scene, **conf: object) -> Run:
    """Start a run of the DAG of the pages, with a slow transfer."""
    given: dict[str, object] = {
        "source": f"/data/{scene.name}/",
        "destination": f"/data/{scene.name}",
        "rate_max": RATE,
        **conf,
    }
    return scene.airflow.trigger("pages", scene.name, given)


def page_of(scene: Scene) -> str:
    """Return the address of the page of the scene's run, outside the frame of Airflow."""
    return f"{scene.airflow.url}/dray/?dag_id=pages&run_id={scene.name}"


def call(world: World, user: str, what: str = "transfers", **query: str) -> httpx.Response:
    """Call the API as a user."""
    headers = {"Authorization": f"Bearer {world.airflow.token(user)}"} if user else {}
    url = f"{world.airflow.url}/dray/api/{what}"
    return httpx.get(url, params=query, headers=headers, timeout=30)


def percent(chromium: Browser, frame: str = "document") -> float:
    """Return the shown progress of the first transfer."""
    value: float = chromium.run(f"return {frame}.querySelector('progress').position")
    return value


@needs_browser
def test_a_run_shows_live_progress_its_plan_and_a_lost_endpoint(
    scene: Scene, world: World, chromium: Browser
) -> None:
    scene.make({"large": SIZE})
    run = begin(scene, deadline="10m", bytes=SIZE)
    log_in(chromium, world)
    scene.await_moving(MIB)
    chromium.open(f"{world.airflow.url}/dags/pages/runs/{scene.name}/plugin/dray-run")
    chromium.wait(f"{FRAME}?.querySelector('.origin')?.textContent === 'live'")
    before = percent(chromium, FRAME)
    chromium.wait(f"{FRAME}.querySelector('progress').position > arguments[0]", before)
    # The plan of the run is drawn below, and the endpoint's promise is in it.
    chromium.wait(f"{FRAME}.querySelectorAll('svg .box').length === 5")
    svg = chromium.run(f"return {FRAME}.querySelector('svg').textContent")
    assert "stage_out" in svg
    table = chromium.run(f"return {FRAME}.querySelector('table').innerText")
    assert "1 min 0 s (declared)" in table

    world.b.kill()
    chromium.open(page_of(scene))
    chromium.wait("document.querySelector('.problem') !== null")
    problem = chromium.run("return document.querySelector('.problem').innerText")
    assert "dray_b" in problem
    assert "refused" in problem
    assert "check that drayd runs" in problem
    chromium.wait_text("last state that the")
    world.b.start()
    chromium.wait("document.querySelector('.problem') === null")
    chromium.wait("document.querySelector('.origin').textContent === 'live'")

    chromium.open(f"{world.airflow.url}/dags/pages/plugin/dray-plan")
    chromium.wait(f"{FRAME}?.querySelector('table') !== null")
    task = f"{world.airflow.url}/dags/pages/runs/{scene.name}/tasks/stage_in/plugin/dray-task"
    chromium.open(task)
    chromium.wait(f"{FRAME}?.querySelectorAll('.card').length === 1")
    assert [line for line in chromium.complaints() if "escape its sandboxing" not in line] == []
    run.mark_failed()


@pytest.mark.full
@needs_browser
def test_hostile_names_are_shown_as_text(scene: Scene, world: World, chromium: Browser) -> None:
    scene.make(dict.fromkeys(HOSTILE, 10))
    # A folder in the place of each file: each file fails, and the page shows its name.
    for name in HOSTILE:
        (scene.there / name).mkdir(parents=True)
    run = begin(scene)
    run.await_task("stage_in", "failed", "success", seconds=120)
    log_in(chromium, world)
    chromium.open(page_of(scene))
    chromium.wait("document.querySelectorAll('.failure li').length === 4")
    text = chromium.text()
    assert HOSTILE[0] in text
    # The endpoint itself encodes these characters in its messages.
    assert "run%E2%80%AEtxt.exe" in text
    assert "two%0Alines" in text
    assert HOSTILE[3] in text

    for marked in ("img", "b"):
        assert chromium.run("return document.querySelector('main ' + arguments[0])", marked) is None
    assert "owned" not in chromium.run("return document.title")


def test_a_caller_without_permission_learns_nothing(scene: Scene, world: World) -> None:
    scene.make({"small": 10})
    run = begin(scene)
    run.await_task("stage_in", "success")
    known = {"dag_id": "pages", "run_id": scene.name}
    for what in ("transfers", "plan"):
        assert call(world, "viewer", what, **known).status_code == 200
        refused = call(world, "nobody", what, **known)
        assert refused.status_code == 403
        # The answer for a run that exists equals the answer for one that does not.
        assert refused.text == call(world, "nobody", what, dag_id="none", run_id="none").text
        assert call(world, "", what, **known).status_code == 401
    url = f"{world.airflow.url}/dray/api/transfers"
    session = {"_token": world.airflow.token("admin")}
    assert httpx.get(url, params=known, cookies=session).status_code == 200
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert httpx.get(url, params=known, cookies=session, headers=elsewhere).status_code == 403
    # The names that Airflow checks and the names that are read cannot differ.
    for query in ("dag_id=~&run_id=x", "dag_id=a&dag_id=pages&run_id=x", "run_id=x"):
        assert httpx.get(f"{url}?{query}", cookies=session).status_code == 422
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert httpx.request(method, url, cookies=session).status_code == 405

    answer = call(world, "viewer", **known)
    (one,) = [each for each in answer.json()["transfers"] if each["task_id"] == "stage_in"]
    assert (one["origin"], one["state"]) == ("live", "done")
    # The state of an ended transfer stays the same, so the browser gets it once.
    tags = {"If-None-Match": answer.headers["ETag"]}
    again = httpx.get(url, params=known, cookies=session, headers=tags)
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.full
@needs_browser
def test_a_page_of_another_site_neither_reads_nor_frames(
    scene: Scene, world: World, chromium: Browser
) -> None:
    scene.make({"small": 10})
    begin(scene).await_task("stage_in", "success")
    log_in(chromium, world)
    api = f"{world.airflow.url}/dray/api/transfers?dag_id=pages&run_id={scene.name}"

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<iframe src="{page_of(scene)}"></iframe>'.encode())

        def log_message(self, *words: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        # For a browser, localhost is another site than 127.0.0.1.
        chromium.open(f"http://localhost:{server.server_port}/")
        chromium.run(
            "fetch(arguments[0], {credentials: 'include'}).then(() => 'read', () => 'refused')"
            ".then((word) => { document.title = word; })",
            api,
        )
        chromium.wait("document.title !== ''")
        assert chromium.run("return document.title") == "refused"
        assert any("frame-ancestors" in line for line in chromium.complaints())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.full
def test_no_token_is_in_answers_or_logs_and_many_pages_are_one_caller(
    scene: Scene, world: World
) -> None:
    scene.make({"large": SIZE})
    run = begin(scene)
    scene.await_moving(MIB)
    secret = json.loads(world.airflow.environment["AIRFLOW_CONN_DRAY_B"])["password"]
    session = world.airflow.token("viewer")
    url = f"{world.airflow.url}/dray/"
    texts: list[str] = []
    for path in ("", "page.js", "plan.js", "text.js", "transfers.js", "page.css"):
        answer = httpx.get(url + path)
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        texts.append(answer.text)
    query = {"dag_id": "pages", "run_id": scene.name}
    headers = {"Authorization": f"Bearer {session}"}
    before, started = _queries(world), time.monotonic()

    def poll(_: int) -> list[str]:
        found = []
        with httpx.Client(headers=headers, timeout=60) as client:
            while time.monotonic() < started + 6:
                answer = client.get(f"{url}api/transfers", params=query)
                assert answer.status_code == 200
                found.append(answer.text)
                time.sleep(0.5)
        return found

    with ThreadPoolExecutor(20) as pool:
        answers = [text for each in pool.map(poll, range(20)) for text in each]
    took, asked = time.monotonic() - started, _queries(world) - before
    print(f"{len(answers)} answers in {took:.1f} s, {asked} calls to the endpoint")
    # The triggerer asks every two seconds too.
    assert 2 <= asked <= took * 1.5 + 3
    assert len(answers) > 20
    texts += answers
    log = world.airflow.said("api-server", 10**6)
    assert "/dray/api/transfers" in log
    for text in (*texts, log):
        assert secret not in text
        assert session not in text
    run.mark_failed()


def _queries(world: World) -> int:
    """Return how many times the endpoint has answered the query of several transfers."""
    answer = ask(world.b, "GET", "/metrics", token=world.b.token(subject="root"))
    assert answer.code == 200
    lines = answer.text.splitlines()
    found = [line for line in lines if "/v1/transfers/query" in line and "requests_total" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("is_dark", [False, True])
def test_an_audit_finds_no_serious_fault_of_accessibility(
    scene: Scene, world: World, chromium: Browser, is_dark: bool
) -> None:
    scene.make({"small": 10, HOSTILE[0]: 10})
    (scene.there / HOSTILE[0]).mkdir(parents=True)
    begin(scene, deadline="10m").await_task("stage_in", "failed", "success")
    log_in(chromium, world)
    chromium.resize(1280, 900, is_dark=is_dark)
    chromium.open(page_of(scene))
    for selector in (".failure", "table"):
        chromium.element(selector)
    chromium.run("document.querySelector('details').open = true")
    assert serious_faults(chromium) == []
    folder = os.environ.get("DRAY_SCREENSHOTS")
    if folder:
        chromium.screenshot(Path(folder) / f"pages-{'dark' if is_dark else 'light'}.png")
