"""Keeps feature flags in memory and up to date, without asking for them.

usage: flags.py NODE,NODE,… PREFIX

A flag is a key that begins with PREFIX; its value is on or off. A program reads `now` wherever it decides by
a flag. Prints each flag as it changes, and `ready` when it knows all of them.
"""

import http.client
import json
import sys
import time
import urllib.parse

ANSWER_S = 60


class Cluster:
    """Follows events of any node, and of another one when that ends."""

    def __init__(self, nodes):
        self.nodes = nodes.split(",")

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


class Flags:
    """The flags of a prefix. Any thread may read `now`, which is replaced as a whole."""

    def __init__(self):
        self.now = {}

    def follow(self, nodes, prefix):
        known, is_live = {}, False
        for name, data in Cluster(nodes).events(f"/v1/watch?prefix={urllib.parse.quote(prefix)}"):
            if name == "reset":
                # The state follows. What was known until now serves until it is complete.
                known, is_live = {}, False
            elif name == "put":
                known[data["key"]] = data["val"]
            elif name == "delete":
                known.pop(data["key"], None)
            elif name == "live":
                is_live = True
                print("ready", flush=True)
            if is_live and name != "progress":
                self.replace(dict(known))

    def replace(self, flags):
        for flag in sorted(self.now.keys() | flags.keys()):
            if self.now.get(flag) != flags.get(flag):
                print(flag, flags.get(flag, "deleted"), flush=True)
        self.now = flags


if __name__ == "__main__":
    Flags().follow(*sys.argv[1:])
