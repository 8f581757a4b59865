"""Sends three nodes with TLS and tokens every kind of traffic, and checks their /metrics in both text formats: with
promtool, which knows the older one, and with the parser of the Prometheus project for OpenMetrics. Then Prometheus itself
scrapes them, evaluates the alerts, and answers the queries of the dashboard. Ends with `N passed, N failed`.

usage: run.py TIDELOCK PROMETHEUS PROMTOOL
"""

import http.client
import itertools
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import scraped
from nodes import end_on_sigterm, nodes

PORT_BASE = int(os.environ.get("TIDELOCK_METRICS_PORT", 22470))
PORTS = [PORT_BASE + offset for offset in (0, 3, 6)]
PROMETHEUS_PORT = PORT_BASE + 9
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
PLAIN_TEXT = "text/plain; version=0.0.4"
# The traffic below counts in each of these, on some node.
COUNTED = """commands_forwarded denied http_connections_accepted http_requests peer_bytes_received peer_bytes_sent
peer_frames_received peer_frames_sent raft_commands_proposed raft_entries_applied raft_entries_proposed raft_leaderships
raft_read_rounds reads_linearizable reads_stale resp_commands resp_connections_accepted resp_protocol_errors
tls_handshake_failures wal_bytes_written writes""".split()
# Not shown by every cluster: see the page.
SHOWN_BY_SOME = set()
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"
MEASURED = "http_request_duration_seconds resp_command_duration_seconds wal_fsync_duration_seconds".split()


class Client:
    """Sends requests to one node."""

    def __init__(self, cluster, node):
        self.address, self.resp = cluster.http[node], cluster.resp[node]
        self.token = cluster.root_token.read_text().strip()
        self.context = ssl.create_default_context(cafile=str(cluster.ca))

    def ask(self, method, path, expected, body=None, **headers):
        """Sends a request, and returns the body of its answer, which must have the expected status."""
        connection = http.client.HTTPSConnection(self.address, timeout=60, context=self.context)
        try:
            content = json.dumps(body) if isinstance(body, (dict, list)) else body
            headers = {"Authorization": f"Bearer {self.token}"} | {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            content = answer.read().decode(errors="replace")
            assert answer.status == expected, f"{method} {path}: {answer.status} {content}"
            return content
        finally:
            connection.close()

    def speak_resp(self, *exchanges):
        """Sends inline commands, and checks how the first lines of the replies begin."""
        host, _, port = self.resp.partition(":")
        with socket.create_connection((host, int(port)), 60) as plain:
            with self.context.wrap_socket(plain, server_hostname=host) as connection:
                replies = connection.makefile("rb")
                for line, beginning in (f"AUTH {self.token}", "+OK"), *exchanges:
                    connection.sendall(f"{line}\r\n".encode())
                    reply = replies.readline().decode()
                    assert reply.startswith(beginning), f"{line}: {reply}"

    def speak_without_tls(self):
        """A handshake that fails."""
        host, _, port = self.address.partition(":")
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while connection.recv(4096):
                pass


def key_traffic(client, name):
    client.ask("PUT", f"/v1/keys/{name}", 201, "one")
    client.ask("PUT", f"/v1/keys/{name}", 200, "two", If_Match="*")
    client.ask("PUT", f"/v1/keys/{name}", 412, "three", If_None_Match="*")
    client.ask("GET", f"/v1/keys/{name}", 200)
    client.ask("GET", f"/v1/keys/{name}?stale=true", 200)
    client.ask("GET", f"/v1/keys/{name}-missing", 404)
    client.ask("GET", "/v1/keys?limit=1", 200)
    client.ask("GET", f"/v1/watch?key={name}&wait=1ms", 200)
    client.ask("POST", "/v1/transactions", 200, {"id": name, "then": [{"put": {"key": name, "val": "four"}}]})
    client.ask("POST", f"/v1/atomics/{name}-number/exchange", 200, {"value": 1})
    client.ask("PUT", f"/db/{name}-raw", 200, "value")
    client.ask("PUT", f"/{name}?val=five&ver=0", 200)
    client.ask("GET", f"/{name}", 200)
    lease = json.loads(client.ask("POST", "/v1/leases", 201, {"tag": f"{name}-lock", "ttl": "1h"}))["id"]
    client.ask("POST", f"/v1/locks/{name}-lock/acquire", 200, {"lease": lease})
    client.ask("DELETE", f"/v1/keys/{name}", 204)


def configuration_traffic(client, namespace):
    path = f"/api/namespaces/{namespace}"
    client.ask("POST", path, 200)
    client.ask("POST", f"{path}/pairs/port", 200, {"type": "int", "value": 1})
    client.ask("GET", f"{path}/pairs/port", 200)
    client.ask("POST", f"{path}/containers/app/import", 200, {"name": "one"})
    client.ask("GET", f"{path}/watch?wait=1ms", 200)
    client.ask("GET", f"{path}-missing", 404)
    client.ask("DELETE", f"{path}?force=true", 200)


def other_traffic(client):
    client.ask("GET", "/v1/keys/some-key", 401, Authorization="Bearer wrong")
    client.ask("PATCH", "/v1/keys/some-key", 405)
    for path in ("/v1/cluster", "/v1/auth/whoami", "/v1/backup", "/v1/audit", "/ui/", "/openapi.json", "/readyz?verbose"):
        client.ask("GET", path, 200)
    client.ask("POST", "/v1/cluster/checkpoint", 200)
    client.speak_resp(("SET resp-key value", "+OK"), ("INCR resp-number", ":"), ("DEL resp-key", ":"), ("NO-SUCH-COMMAND", "-ERR"),
                      ("*1\r\nno-length", "-ERR"))
    client.speak_without_tls()


def samples(families):
    """Names of samples with their labels, by which the formats are compared."""
    return {(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples}


def check(found):
    """Fails if there are findings."""
    assert not found, "\n".join(found)


def passes_promtool(promtool, text):
    done = subprocess.run([promtool, "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # It also ends with 0 if it has advice only.
    check([f"promtool ended with {done.returncode}: {done.stdout}"] if done.returncode or done.stdout else [])


def is_same_in_both(plain, open_text):
    """Between two scrapes only values change, and what a label first appears with."""
    assert open_text.endswith("# EOF\n"), "the OpenMetrics text has no end"
    plain, open_text = samples(plain_text(plain)), samples(open_metrics(open_text))
    check([f"only in one format: {name} {labels}" for name, labels in sorted(plain ^ open_text)])


def is_counted(texts):
    """The test is about nodes that have served everything only if the counters say so."""
    counts = {}
    for text in texts:
        for family in plain_text(text):
            for sample in family.samples:
                counts[sample.name] = counts.get(sample.name, 0) + sample.value
    names = [f"{name}_total" for name in COUNTED] + [f"{name}_count" for name in MEASURED]
    check([f"no traffic is counted by {name}" for name in names if not counts.get(f"tidelock_{name}")])


def documented(page):
    """Names of metrics in the first column of the first table of the page. Braces hold alternatives, and at the end labels."""
    names = set()
    for row in page.partition("/v1/metrics/history")[0].splitlines():
        for name in re.findall(r"`([a-z0-9_{},]+)`", row.split("|")[1]) if row.startswith("| `") else ():
            parts = re.split(r"[{}]", re.sub(r"\{[^}]*\}$", "", name))
            names |= {"tidelock_" + "".join(chosen) for chosen in itertools.product(*(part.split(",") for part in parts))}
    return names


def is_on_its_page(text):
    page = documented(PAGE.read_text())
    shown = set(re.findall(r"^# TYPE (tidelock_\w+) ", text, re.MULTILINE))
    check([f"{name} is not on {PAGE.name}" for name in sorted(shown - page)])
    check([f"{PAGE.name} names {name}, which no node shows" for name in sorted(page - shown - SHOWN_BY_SOME)])


class Results:
    """Counts the tests, and prints each with its result."""

    def __init__(self):
        self.passed = self.failed = 0

    def test(self, name, test, *arguments):
        try:
            test(*arguments)
            self.passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            self.failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)


def check_texts(results, promtool, clients):
    texts = [(client.ask("GET", "/metrics", 200, Accept=PLAIN_TEXT), client.ask("GET", "/metrics", 200, Accept=OPEN_METRICS))
             for client in clients]
    results.test("every kind of traffic is counted", is_counted, [plain for plain, _ in texts])
    results.test("each metric is on its page", is_on_its_page, "".join(plain for plain, _ in texts))
    for number, (plain, open_text) in enumerate(texts, 1):
        results.test(f"promtool check metrics, node {number}", passes_promtool, promtool, plain)
        results.test(f"the same metrics as OpenMetrics, node {number}", is_same_in_both, plain, open_text)


def check_alerts(results, promtool):
    results.test("the alerts are valid", scraped.promtool_accepts, promtool, "check", "rules", "alerts.yml")
    results.test("the alerts are raised by what they are for", scraped.promtool_accepts, promtool, "test", "rules", "alerts_test.yml")
    results.test("each alert is explained", scraped.alerts_are_explained)


def check_scraping(results, prometheus, cluster):
    """The token has the one permission that the example says it needs."""
    cluster.administer("auth", "role", "put", "monitoring", "--grant", "cluster:read")
    cluster.administer("auth", "principal", "put", "prometheus", "--role", "monitoring")
    token = cluster.data / "prometheus.token"
    cluster.administer("auth", "token", "create", "prometheus", "--out", str(token))
    version = subprocess.run([cluster.tidelock, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
    with scraped.prometheus(prometheus, cluster, token.read_text(), PROMETHEUS_PORT) as running:
        results.test("Prometheus scrapes all nodes with TLS and a token", running.is_scraping, len(cluster.http))
        results.test("Prometheus evaluates the alerts", running.evaluates_alerts)
        results.test("every query of the dashboard finds data", running.answers_dashboard)
        results.test("the build is known", running.knows_the_version, version)
    with scraped.prometheus(prometheus, cluster, token.read_text()[:-2], PROMETHEUS_PORT) as running:
        results.test("a wrong token is refused", running.refuses, len(cluster.http), "401")


def main(tidelock, prometheus, promtool):
    end_on_sigterm()
    results = Results()
    with nodes(tidelock, *PORTS, secure=True) as cluster:
        cluster.administer("auth", "role", "put", "data", "--grant", "read keys:", "--grant", "write keys:", "--grant", "watch keys:",
                           "--grant", "read config:*", "--grant", "write config:*")
        cluster.administer("auth", "principal", "put", "root", "--role", "admin", "--role", "data")
        clients = [Client(cluster, node) for node in range(3)]
        for number, client in enumerate(clients, 1):
            key_traffic(client, f"metrics-{number}")
            configuration_traffic(client, f"metrics-{number}")
            other_traffic(client)
        check_texts(results, promtool, clients)
        check_alerts(results, promtool)
        check_scraping(results, prometheus, cluster)
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
