"""A user a stream, each with locust's FastHttpUser. STREAMS and REQUESTS come from outside."""

import csv
import json
import os
import time
from pathlib import Path

import gevent
from locust import FastHttpUser, events, task
from locust.exception import StopUser

STREAMS, REQUESTS = int(os.environ["STREAMS"]), int(os.environ["REQUESTS"])
BODY = json.dumps(
    {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 64, "stream": True}
)
HEADERS = {"Content-Type": "application/json"}
places = iter(range(REQUESTS))
rows = []


class Stream(FastHttpUser):
    concurrency = 1

    @task
    def ask(self) -> None:
        place = next(places, None)
        if place is None:
            raise StopUser
        ttft, began = None, time.monotonic()
        headers = {**HEADERS, "X-Request-Id": f"l{place}"}
        with self.client.post("/v1/chat/completions", data=BODY, headers=headers, stream=True) as reply:
            lines = reply._response  # iter_content waits until a piece is full
            while line := lines.readline(b"\n"):
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    if ttft is None and choices and choices[0]["delta"].get("content"):
                        ttft = time.monotonic() - began
        rows.append((f"l{place}", ttft))
        if len(rows) == REQUESTS:
            gevent.spawn(self.environment.runner.quit)  # which ends this one, too


@events.quitting.add_listener
def write(environment, **_) -> None:
    environment.process_exit_code = 0
    with Path("ttft.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
