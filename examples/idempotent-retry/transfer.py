"""Moves units from one account to another, each exactly once, whatever happens to answers.

usage: transfer.py NODE,NODE,… BANK UNITS

A transfer is a transaction with an id. If its answer is lost, the program sends it again with the same id: the store
does it once, and answers every repetition with the first outcome.
"""

import http.client
import json
import sys
import time
import uuid

ANSWER_S = 30


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


def transact(cluster, transaction):
    status, content = cluster.ask("POST", "/v1/transactions", json.dumps(transaction))
    assert status == 200, content
    return json.loads(content)


def transfer(cluster, accounts):
    """Moves one unit. Returns false if another process changed an account since it was read."""
    found = transact(cluster, {"then": [{"get": {"key": account}} for account in accounts]})
    giver, taker = (result["get"] for result in found["results"])
    done = transact(cluster, {
        # Without the id, a repetition after a lost answer could not tell its own change from that of another process.
        "id": str(uuid.uuid4()),
        "if": [{"key": account["key"], "ver": account["ver"]} for account in (giver, taker)],
        "then": [
            {"put": {"key": giver["key"], "val": str(int(giver.get("val", 0)) - 1)}},
            {"put": {"key": taker["key"], "val": str(int(taker.get("val", 0)) + 1)}},
        ],
    })
    return done["succeeded"]


def main(nodes, bank, units):
    # The common tag puts both accounts into one slot.
    cluster, accounts = Cluster(nodes), [f"{{{bank}}}a", f"{{{bank}}}b"]
    for _ in range(int(units)):
        while not transfer(cluster, accounts):
            pass
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
