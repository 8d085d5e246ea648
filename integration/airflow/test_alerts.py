"""The deadline in a run's conf fires under a real scheduler, and the alert names the transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray.testing.scripted import ScriptedEndpoint, json_reply

if TYPE_CHECKING:
    from integration.airflow.conftest import Scene

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.mark.full
def test_a_deadline_that_passes_names_the_transfer_that_still_moves(scene: Scene) -> None:
    # The scheduler has half a minute to start the task. The transfer takes 45 seconds.
    scene.make({"x": 24 << 20})
    with ScriptedEndpoint() as chat:
        chat.always("POST", "/", json_reply({"ok": True}))
        scene.airflow.ask(
            "POST",
            "connections",
            {
                "connection_id": "chat",
                "conn_type": "http",
                "host": "127.0.0.1",
                "schema": "http",
                "port": chat.port,
            },
        )
        try:
            run = scene.airflow.trigger(
                "alerted",
                scene.name,
                {
                    "source": f"/data/{scene.name}/x",
                    "destination": f"/data/{scene.name}/x",
                    "rate_max": 512 << 10,
                    "seconds": 1,
                    "deadline": "30s",
                },
            )
            asked = scene.airflow.wait_for(
                lambda: chat.asked_for("POST", "/"), "an alert is sent", 120
            )
            (text,) = (each.json["text"] for each in asked)
            assert text.startswith(f"run {scene.name} of alerted missed its deadline 20"), text
            assert "of task move will end after" in text, text
            run.await_end()
            scene.check()
        finally:
            scene.airflow.ask("DELETE", "connections/chat")
