"""Copies keys of etcd, Consul KV or Redis to Tidelock, with the standard library of Python alone.

usage: migrate.py [options] etcd FILE        what `etcdctl get '' --prefix -w json` has written
       migrate.py [options] consul FILE      what `consul kv export` has written
       migrate.py [options] redis HOST:PORT  a running Redis

A key that exists with another value is not changed, but reported, so the program may be repeated. It ends with 1
if there was such a key. What has no equivalent is left out, and counted by its reason.
"""

import argparse
import base64
import collections
import json
import socket
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ATTEMPTS = 100
PAUSE_S = 0.2


def arguments():
    parser = argparse.ArgumentParser(description="Copies keys of etcd, Consul KV or Redis to Tidelock.")
    parser.add_argument("--url", default="http://127.0.0.1:8001", help="a node [default: %(default)s]")
    parser.add_argument("--ca", help="file with the certificates that the node's must be signed by")
    parser.add_argument("--token-file", help="file with the token to send")
    parser.add_argument("--prefix", default="", help="put this before each key")
    parser.add_argument("source", choices=["etcd", "consul", "redis"])
    parser.add_argument("input", help="the file, or HOST:PORT of Redis")
    return parser.parse_args()


def etcd(path, left_out):
    """Key, value and milliseconds to live of each key."""
    with open(path, encoding="utf-8") as file:
        for item in json.load(file).get("kvs", []):
            # A lease is renewed by a client of etcd, which has to bind the key to a lease of Tidelock itself.
            if item.get("lease"):
                left_out["bound to a lease"] += 1
            else:
                yield base64.b64decode(item["key"]), base64.b64decode(item.get("value", "")), None


def consul(path, left_out):
    with open(path, encoding="utf-8") as file:
        for item in json.load(file):
            if item["key"].endswith("/") and not item["value"]:
                left_out["a folder without a value"] += 1
                continue
            if item["flags"]:
                left_out["flags of a key that was copied"] += 1
            yield item["key"].encode(), base64.b64decode(item["value"] or ""), None


class Redis:
    """A connection to Redis, which sends one command at a time."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.stream = socket.create_connection((host, int(port)), timeout=60).makefile("rwb")

    def ask(self, *command):
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
        self.stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        self.stream.flush()
        return self.reply()

    def reply(self):
        line = self.stream.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        raise SystemExit(f"Redis answered {line.decode()}")


def redis(address, left_out):
    connection, cursor, seen = Redis(address), b"0", set()
    while True:
        cursor, keys = connection.ask("SCAN", cursor, "COUNT", 1000)
        # SCAN may return a key twice.
        for key in dict.fromkeys(keys):
            if key in seen:
                continue
            seen.add(key)
            kind = connection.ask("TYPE", key).decode()
            if kind != "string":
                left_out[f"of the type {kind}"] += kind != "none"
                continue
            value, ttl_ms = connection.ask("GET", key), connection.ask("PTTL", key)
            if value is not None and ttl_ms != -2:
                yield key, value, None if ttl_ms == -1 else max(ttl_ms, 1)
        if cursor == b"0":
            return


class Tidelock:
    def __init__(self, options):
        self.url = options.url.rstrip("/")
        self.tls = ssl.create_default_context(cafile=options.ca) if options.ca else None
        self.headers = {}
        if options.token_file:
            with open(options.token_file, encoding="utf-8") as file:
                self.headers["Authorization"] = f"Bearer {file.read().strip()}"

    def request(self, method, path, body=None, headers={}):
        """Status and body. Asks again while the node refuses or does not know; every request here may be repeated."""
        for _ in range(ATTEMPTS):
            request = urllib.request.Request(self.url + path, body, {**self.headers, **headers}, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60, context=self.tls) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503, 504):
                    return error.code, error.read()
            except OSError as error:
                print(f"{self.url}: {error}; trying again", file=sys.stderr)
            time.sleep(PAUSE_S)
        raise SystemExit(f"{self.url} does not serve")

    def store(self, key, value, ttl_ms):
        """Whether the key has this value now; the reason if it has not."""
        path = "/v1/keys/" + urllib.parse.quote(key, safe="")
        ttl = f"?ttl={ttl_ms}ms" if ttl_ms is not None else ""
        status, body = self.request("PUT", path + ttl, value, {"If-None-Match": "*"})
        if status == 201:
            return None
        if status == 412:
            status, present = self.request("GET", path)
            return None if (status, present) == (200, value) else "it exists with another value"
        return json.loads(body)["detail"]


def main():
    options = arguments()
    left_out, stored, refused = collections.Counter(), 0, 0
    target = Tidelock(options)
    for key, value, ttl_ms in globals()[options.source](options.input, left_out):
        key = options.prefix.encode() + key
        reason = target.store(key, value, ttl_ms)
        if reason is None:
            stored += 1
        else:
            refused += 1
            print(f"not stored: {key.decode(errors='backslashreplace')}: {reason}")
    print(f"{stored} stored, {refused} not stored")
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count} {reason}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
