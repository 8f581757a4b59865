"""Keeps the configuration of a namespace in memory and up to date, and the last good copy in a file.

usage: config.py NODE,NODE,… NAMESPACE FILE

A program reads `now`, the documents by container. It starts with the copy in FILE if no node answers. Prints
`copy` or `current` with the documents, and again whenever they change.
"""

import http.client
import json
import os
import sys
import time
import urllib.parse

ANSWER_S = 60


class Cluster:
    """Follows events of any node, and of another one when that ends."""

    def __init__(self, nodes):
        self.nodes = nodes.split(",")
        self.problems = {}

    def report(self, problem):
        """Says what is wrong with a node, once until that changes."""
        if self.problems.get(self.nodes[0]) != problem:
            self.problems[self.nodes[0]] = problem
            if problem:
                print(f"{self.nodes[0]}: {problem}", file=sys.stderr, flush=True)

    def events(self, path):
        """Server-sent events, from another node behind the last event whenever the connection ends."""
        last = ""
        while True:
            connection = http.client.HTTPConnection(self.nodes[0], timeout=ANSWER_S)
            try:
                connection.request("GET", path, headers={"Last-Event-ID": last} if last else {})
                event, answer = {}, connection.getresponse()
                if answer.status != 200:
                    raise OSError(f"{answer.status} {answer.read(500).decode()}")
                self.report(None)
                for line in answer:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        event[name] = value
                        continue
                    last = event.get("id", last)
                    yield event.get("event"), json.loads(event.get("data", "{}"))
                    event = {}
            except (OSError, http.client.HTTPException) as error:
                self.report(str(error))
            finally:
                connection.close()
            self.nodes.append(self.nodes.pop(0))
            time.sleep(0.2)


class Configuration:
    """The documents of a namespace. Any thread may read `now`, which is replaced as a whole."""

    def __init__(self, path):
        self.path, self.now = path, {}
        if os.path.exists(path):
            with open(path) as copy:
                self.replace("copy", json.load(copy))

    def follow(self, nodes, namespace):
        known, is_current = {}, False
        for name, data in Cluster(nodes).events(f"/api/namespaces/{urllib.parse.quote(namespace, '')}/watch"):
            if name == "gap":
                # The state follows. What was known until now serves until it is complete.
                known, is_current = {}, False
            elif name == "change":
                known[data["key"]] = data["data"]
            elif name == "deleted":
                known = {key: known[key] for key in known if key != data.get("key", key)}
            elif name == "current":
                is_current = True
            if is_current and name:
                self.replace("current", dict(known))

    def replace(self, source, documents):
        if source == "current" and documents != self.now:
            with open(f"{self.path}.new", "w") as copy:
                json.dump(documents, copy)
                copy.flush()
                os.fsync(copy.fileno())
            os.replace(f"{self.path}.new", self.path)
        self.now = documents
        print(source, json.dumps(documents, sort_keys=True, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    Configuration(sys.argv[3]).follow(*sys.argv[1:3])
