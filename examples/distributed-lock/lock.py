"""Counts under a lock: several processes add to one counter, and no addition is lost.

usage: lock.py NODE,NODE,… LOCK ROUNDS [SECONDS]

In each round the process acquires the lock, reads the counter, works for SECONDS, and writes the counter with the fence
of the lock. If it was paused for longer than its lease lives, another process has the lock by then. The fenced write is
refused, and the round begins again.
"""

import http.client
import json
import os
import sys
import threading
import time

TTL_S = 3
ANSWER_S = 30
# Renewals give up on a node that hangs in time to ask the others.
RENEWAL_S = TTL_S / 4


class Cluster:
    """Asks any node, and another one if that gives no answer. Every request here may be repeated."""

    def __init__(self, nodes, answer_s=ANSWER_S):
        self.nodes, self.answer_s = nodes.split(","), answer_s

    def ask(self, method, path, body=None, headers={}):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection(self.nodes[0], timeout=self.answer_s)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status not in (503, 504):
                    return answer.status, content
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            self.nodes.append(self.nodes.pop(0))
            time.sleep(0.2)
        raise TimeoutError(f"no node answered {method} {path}")


class Lease:
    """A lease that a thread renews until it ends or is revoked."""

    def __init__(self, nodes, tag):
        self.cluster = Cluster(nodes, RENEWAL_S)
        body = json.dumps({"ttl": f"{TTL_S}s", "tag": tag})
        status, content = self.cluster.ask("POST", "/v1/leases", body)
        assert status == 201, content
        self.id = json.loads(content)["id"]
        self.has_ended = threading.Event()
        threading.Thread(target=self.renew, daemon=True).start()

    def renew(self):
        body = json.dumps({"ids": [self.id]})
        while not self.has_ended.wait(TTL_S / 3):
            _, content = self.cluster.ask("POST", "/v1/leases/renew", body)
            if "problem" in json.loads(content)["leases"][0]:
                self.has_ended.set()


def one_round(cluster, lease, lock, seconds):
    """Adds 1 to the counter. Returns whether that was done."""
    wanted = {"lease": lease.id, "wait": "10s", "value": f"python {os.getpid()}"}
    status, content = cluster.ask("POST", f"/v1/locks/{lock}/acquire", json.dumps(wanted))
    if status == 404:
        lease.has_ended.set()
    if status != 200:
        return False
    fence = json.loads(content)["fence"]
    print(f"holding, fence {fence}", flush=True)

    counter = f"/v1/keys/%7B{lock}%7Dcount"
    status, content = cluster.ask("GET", counter)
    count = int(content) if status == 200 else 0
    time.sleep(seconds)
    # The write may be repeated after an answer that was lost, because nobody else can write meanwhile.
    status, _ = cluster.ask("PUT", counter, str(count + 1), {"If-Fence": f"{lock}={fence}"})
    if status == 412:
        print(f"refused, fence {fence}", flush=True)
        return False
    cluster.ask("POST", f"/v1/locks/{lock}/release", json.dumps({"lease": lease.id}))
    return True


def main(nodes, lock, rounds, seconds="0"):
    cluster, lease, done = Cluster(nodes), Lease(nodes, lock), 0
    while done < int(rounds):
        if lease.has_ended.is_set():
            lease = Lease(nodes, lock)
        done += one_round(cluster, lease, lock, float(seconds))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
