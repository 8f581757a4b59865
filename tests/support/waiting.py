"""Waiting for what other processes do."""

import time

# Generous: nothing here is about speed, and a gate may run everything else on the same two cores.
WAIT_S_MAX = 90


def eventually(what, attempt):
    """The first true result of the attempt. An AssertionError if there is none in time."""
    deadline = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline:
        if found := attempt():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S_MAX} s: {what}")
