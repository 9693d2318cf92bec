"""A thread a stream, each with urllib: what one writes in ten minutes. URL, STREAMS and REQUESTS come from outside."""

import csv
import json
import os
import threading
import time
import urllib.request
from pathlib import Path

URL, STREAMS, REQUESTS = os.environ["URL"], int(os.environ["STREAMS"]), int(os.environ["REQUESTS"])
BODY = json.dumps(
    {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 64, "stream": True}
).encode()
rows = []


def stream(number: int) -> None:
    for place in range(number, REQUESTS, STREAMS):
        headers = {"Content-Type": "application/json", "X-Request-Id": f"t{place}"}
        began = time.monotonic()
        ttft = None
        with urllib.request.urlopen(urllib.request.Request(URL, BODY, headers)) as reply:
            for line in reply:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    if ttft is None and choices and choices[0]["delta"].get("content"):
                        ttft = time.monotonic() - began
        rows.append((f"t{place}", ttft))


threads = [threading.Thread(target=stream, args=(number,)) for number in range(STREAMS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with Path("ttft.csv").open("w", newline="") as file:
    csv.writer(file).writerows(rows)
