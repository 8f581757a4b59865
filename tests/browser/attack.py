"""Lets a real Chromium open pages that attack a node on this machine, and checks that they neither change nor read anything.

usage: attack.py TIDELOCK-BINARY CHROMIUM

Each attack runs twice: against a node, and against a server that takes everything. The second run proves that Chromium sends
what the page tries: without it, a page that does nothing would pass.

- A page of another origin, http://evil.test.
- A page whose name is bound to the node's address after it was loaded (DNS rebinding): its server goes, and a forwarder to
  the node takes its address. To the browser the node then has the page's own origin.
"""

import http.server
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 60
NODE = "127.0.0.1"
PAGE = "127.0.0.2"


class Server(http.server.ThreadingHTTPServer):
    """A server that may be stopped and followed by another one at its address."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address, answer):
        super().__init__(address, Handler)
        self.answer = answer
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes each request to the server's function."""

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, kind, answer = self.server.answer(self.command, self.path, self.headers, body)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Connection", "close")
        for name in ("Origin", "Methods"):
            self.send_header(f"Access-Control-Allow-{name}", "GET, PUT, POST, DELETE" if name == "Methods" else "*")
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = handle_any

    def log_message(self, *_):
        pass


def forward(listener, target):
    """Passes on the bytes of every connection to `target`, until the listener is closed."""

    def copy(source, sink):
        try:
            while chunk := source.recv(65536):
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    while True:
        try:
            client, _ = listener.accept()
            node = socket.create_connection(target)
        except OSError:
            return
        for pair in ((client, node), (node, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


def listen(address):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen()
    return listener


def browse(chromium, url):
    """Opens the page. Returns the process."""
    directory = tempfile.mkdtemp()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={directory}"]
    # Loopback addresses are of the private network; what protects them in the browser is not what is tried here.
    flags += ["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,HttpsUpgrades"]
    rules = f"--host-resolver-rules=MAP evil.test {PAGE}, MAP rebind.test {PAGE}"
    with open(os.path.join(directory, "log"), "wb") as log:
        process = subprocess.Popen([chromium, *flags, rules, "--remote-debugging-port=0", url], stdout=log, stderr=log)
    return process, directory


def attack(chromium, target, rebinds):
    """Runs the page against the server with these ports. Returns what the page could read."""
    http_port, resp_port = target
    reports, forwarders, servers = queue.Queue(), [], []
    name = "rebind.test" if rebinds else "evil.test"

    def collect(_method, _path, _headers, body):
        reports.put(body.decode())
        return 204, "text/plain", b""

    collector = Server((NODE, 0), collect)
    page_port = http_port if rebinds else 0

    def serve(_method, path, _headers, _body):
        if path == "/rebind":
            # Closed while another thread waits on it, a listener would keep its address until that thread wakes up.
            servers[0].socket.shutdown(socket.SHUT_RDWR)
            servers[0].server_close()
            listener = listen((PAGE, page_port))
            forwarders.append(listener)
            threading.Thread(target=forward, args=(listener, (NODE, http_port)), daemon=True).start()
            threading.Thread(target=servers[0].shutdown, daemon=True).start()
            return 204, "text/plain", b""
        if path != "/":
            return 404, "text/plain", b""
        with open(os.path.join(HERE, "attack.html"), encoding="utf-8") as source:
            page = source.read()
        origin = "" if rebinds else f"http://{NODE}:{http_port}"
        values = {"TARGET": origin, "RESP": f"http://{NODE}:{resp_port}", "REBINDS": str(rebinds).lower()}
        values["REPORT"] = f"http://{NODE}:{collector.server_port}/"
        for key, value in values.items():
            page = page.replace(f"@{key}@", value)
        return 200, "text/html", page.encode()

    servers.append(Server((PAGE, page_port), serve))
    process, directory = browse(chromium, f"http://{name}:{servers[0].server_port}/")
    try:
        return reports.get(timeout=LIMIT_S)
    except queue.Empty:
        with open(os.path.join(directory, "log"), encoding="utf-8", errors="replace") as log:
            sys.exit(f"attack: the page did not report within {LIMIT_S} s: {log.read()[-2000:]}")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)
        for listener in forwarders:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if not rebinds:
            servers[0].stop()
        collector.stop()


def ask(port, method, path, body=None):
    request = urllib.request.Request(f"http://{NODE}:{port}{path}", method=method, data=body)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def state(port):
    """What an attack must not change."""
    view = json.loads(ask(port, "GET", "/v1/cluster")[1])
    hosts = [(host["node"], host.get("draining")) for host in view["hosts"]]
    paths = ("/v1/keys", "/v1/auth/principals", "/api/namespaces")
    return [hosts, len(view["shards"])] + [ask(port, "GET", path) for path in paths]


def check_control(chromium, rebinds):
    """The page must reach a server that takes everything."""
    seen, secret = [], b"a secret"

    def answer(method, path, headers, body):
        seen.append((method, path.split("?")[0]))
        return 200, "text/plain", secret

    server, lines = Server((NODE, 0), answer), listen((NODE, 0))
    report = attack(chromium, (server.server_port, lines.getsockname()[1]), rebinds)
    server.stop()
    lines.close()
    posts = [path for method, path in seen if method == "POST"]
    wanted = ["/db/victim", "/v1/cluster/hosts/1/drain", "/v1/cluster/shards", "/v1/atomics/victim/exchange"]
    missing = [path for path in wanted if path not in posts]
    if missing or ("PUT", "/v1/keys/victim") not in seen or "a secret" not in report:
        sys.exit(f"attack: the browser did not send what it should: {missing} of {seen}; it read: {report}")
    return len(seen)


def check_node(chromium, binary, rebinds):
    directory = tempfile.mkdtemp()
    ports = [listen((NODE, 0)) for _ in range(3)]
    http_port, resp_port, peer_port = (port.getsockname()[1] for port in ports)
    for port in ports:
        port.close()
    flags = ["--http", f"{NODE}:{http_port}", "--resp", f"{NODE}:{resp_port}", "--peer", f"{NODE}:{peer_port}", "--resp-cluster", "off"]
    with open(os.path.join(directory, "log"), "wb") as log:
        node = subprocess.Popen([binary, "serve", "--data-dir", os.path.join(directory, "data"), *flags], stdout=log, stderr=log)
    try:
        begun = time.monotonic()
        while True:
            try:
                if ask(http_port, "PUT", "/v1/keys/victim", b"a secret")[0] == 201:
                    break
            except OSError:
                pass
            if time.monotonic() - begun > LIMIT_S:
                sys.exit("attack: the node does not serve")
            time.sleep(0.05)
        before = state(http_port)
        report = attack(chromium, (http_port, resp_port), rebinds)
        after = state(http_port)
    finally:
        node.kill()
        node.wait()
        shutil.rmtree(directory, ignore_errors=True)
    if before != after:
        sys.exit(f"attack: the page changed the node: {before} became {after}; it read: {report}")
    for word in ("a secret", "victim", "tidelock_", '"hosts"'):
        if any(word in line.split(": ", 1)[1] for line in report.splitlines()):
            sys.exit(f"attack: the page read {word!r}: {report}")
    if rebinds and "403" not in report and "421" not in report:
        sys.exit(f"attack: the page was not refused by the node, so it did not reach it: {report}")


def main():
    binary, chromium = sys.argv[1:]
    for rebinds in (False, True):
        sent = check_control(chromium, rebinds)
        check_node(chromium, binary, rebinds)
        kind = "a page whose name is bound to the node's address" if rebinds else "a page of another origin"
        print(f"browser: {kind} changes and reads nothing ({sent} requests): ok")


main()
