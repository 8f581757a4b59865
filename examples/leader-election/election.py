"""Lets one of several processes lead, and shows all of them who leads.

usage: election.py NODE,NODE,… ELECTION CANDIDATE

An election is a lock whose value is the name of the candidate that holds it. While the process leads, it writes its
name to a key with the fence of the lock, so that one that was paused and does not know that it was replaced changes
nothing. Prints `leader NAME` when it learns who leads, `elected FENCE` when it is elected, and `deposed` when it may
not act as the leader any more.
"""

import http.client
import json
import sys
import threading
import time
import urllib.parse

TTL_S = 3
ANSWER_S = 60
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

    def events(self, path):
        """Server-sent events, from another node with the last cursor whenever the connection ends."""
        cursor = ""
        while True:
            connection = http.client.HTTPConnection(self.nodes[0], timeout=ANSWER_S)
            try:
                connection.request("GET", path, headers={"Last-Event-ID": cursor})
                event = {}
                for line in connection.getresponse():
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        event[name] = value
                        continue
                    cursor = event.get("id", cursor)
                    yield event.get("event"), json.loads(event.get("data", "{}"))
                    event = {}
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            self.nodes.append(self.nodes.pop(0))
            time.sleep(0.2)


def say(text):
    """Prints a line at once. `print` writes its end by itself, and two threads would mix their lines."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def observe(nodes, election):
    """Prints who leads, whenever that changes."""
    shown = None
    for name, data in Cluster(nodes).events(f"/v1/watch?key={election}"):
        if name == "put" and (data["val"], data["ver"]) != shown:
            shown = data["val"], data["ver"]
            say(f"leader {data['val']}")


def renew(nodes, term):
    """Extends the term of a candidate until it is over."""
    cluster, body = Cluster(nodes, RENEWAL_S), json.dumps({"ids": [term["lease"]]})
    while not term["is_over"]:
        time.sleep(TTL_S / 3)
        asked = time.monotonic()
        _, content = cluster.ask("POST", "/v1/leases/renew", body)
        lease = json.loads(content)["leases"][0]
        if "problem" in lease:
            term["is_over"] = True
        else:
            term["until"] = asked + lease["valid_for_ms"] / 1000


def campaign(cluster, nodes, election, candidate):
    """Leads once: from the election to the end of the term."""
    asked = time.monotonic()
    body = json.dumps({"ttl": f"{TTL_S}s", "tag": election})
    _, content = cluster.ask("POST", "/v1/leases", body)
    term = {"lease": json.loads(content)["id"], "until": asked + TTL_S, "is_over": False}
    threading.Thread(target=renew, args=(nodes, term), daemon=True).start()

    wanted = json.dumps({"lease": term["lease"], "wait": "20s", "value": candidate})
    status, content = cluster.ask("POST", f"/v1/locks/{election}/acquire", wanted)
    while status == 409:
        status, content = cluster.ask("POST", f"/v1/locks/{election}/acquire", wanted)
    if status != 200:
        term["is_over"] = True
        return
    fence = json.loads(content)["fence"]
    say(f"elected {fence}")
    # The process must stop before its lease ends, even if it hears from no node.
    while not term["is_over"] and time.monotonic() < term["until"]:
        lead(cluster, election, candidate, fence, term)
        time.sleep(0.2)
    term["is_over"] = True
    say("deposed")


def lead(cluster, election, candidate, fence, term):
    """The work that only the leader may do."""
    key = urllib.parse.quote(f"{{{election}}}done-by")
    status, _ = cluster.ask("PUT", f"/v1/keys/{key}", candidate, {"If-Fence": f"{election}={fence}"})
    if status == 412:
        say(f"refused {fence}")
        term["is_over"] = True


def main(nodes, election, candidate):
    threading.Thread(target=observe, args=(nodes, election), daemon=True).start()
    cluster = Cluster(nodes)
    while True:
        campaign(cluster, nodes, election, candidate)


if __name__ == "__main__":
    main(*sys.argv[1:])
