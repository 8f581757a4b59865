"""Registers an instance of a service for as long as the process runs, or shows all instances as they come and go.

usage: registry.py NODE,NODE,… register SERVICE INSTANCE ADDRESS
       registry.py NODE,NODE,… discover SERVICE

An instance is a key that is bound to a lease, so it is gone a few seconds after its process ends, in whatever way.
`discover` prints the instances in one line whenever they change.
"""

import http.client
import json
import sys
import time
import urllib.parse

TTL_S = 3
# A node that hangs is given up in time to ask the others.
ANSWER_S = TTL_S / 4
# Between two events: a node sends one every ten seconds at least.
SILENCE_S = 60


class Cluster:
    """Asks any node, and another one if that gives no answer. Every request here may be repeated."""

    def __init__(self, nodes):
        self.nodes = nodes.split(",")

    def ask(self, method, path, body=None, headers={}):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection(self.nodes[0], timeout=ANSWER_S)
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
            connection = http.client.HTTPConnection(self.nodes[0], timeout=SILENCE_S)
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


def instances(service):
    """The beginning of the keys of a service. The braces make the service the tag of its keys and of its leases."""
    return urllib.parse.quote(f"{{{service}}}/")


def register(nodes, service, instance, address):
    cluster, lease = Cluster(nodes), None
    while True:
        if lease is None:
            _, content = cluster.ask("POST", "/v1/leases", json.dumps({"ttl": f"{TTL_S}s", "tag": service}))
            lease = json.loads(content)["id"]
            key = instances(service) + urllib.parse.quote(instance)
            query = urllib.parse.urlencode({"lease": lease})
            status, _ = cluster.ask("PUT", f"/v1/keys/{key}?{query}", address)
            if status in (200, 201):
                print("registered", flush=True)
        time.sleep(TTL_S / 3)
        _, content = cluster.ask("POST", "/v1/leases/renew", json.dumps({"ids": [lease]}))
        # A process that was paused for too long registers again.
        if "problem" in json.loads(content)["leases"][0]:
            lease = None


def discover(nodes, service):
    known, is_known = {}, False
    for name, data in Cluster(nodes).events(f"/v1/watch?prefix={instances(service)}"):
        if name == "reset":
            known, is_known = {}, False
        elif name == "put":
            known[data["key"]] = data["val"]
        elif name == "delete":
            known.pop(data["key"], None)
        elif name == "live":
            is_known = True
        if is_known and name != "progress":
            shown = (f"{key.split('/', 1)[1]}={address}" for key, address in sorted(known.items()))
            print("instances:", *shown, flush=True)


if __name__ == "__main__":
    {"register": register, "discover": discover}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
