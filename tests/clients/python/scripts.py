"""Runs Python libraries that need Lua scripts: redis-py's lock and scripts, limits, Flask-Limiter, django-redis' lock. Arguments are
the addresses of the nodes. With TEST_CA and TEST_TOKEN_FILE in the environment it connects with TLS and a token."""

import os
import sys
import threading
from urllib.parse import quote

import django
import flask
import flask_limiter
import limits
import redis
from django.conf import settings
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter
from redis.exceptions import LockNotOwnedError, NoScriptError

SECURE = {}
if "TEST_CA" in os.environ:
    with open(os.environ["TEST_TOKEN_FILE"], encoding="ascii") as file:
        SECURE = {"ssl": True, "ssl_ca_certs": os.environ["TEST_CA"], "password": file.read().strip()}


def connect(node, **options):
    return redis.Redis(host=node[0], port=int(node[1]), **SECURE, **options)


def url_of(node):
    if not SECURE:
        return f"redis://{node[0]}:{node[1]}"
    password = quote(SECURE["password"], safe="")
    return f"rediss://:{password}@{node[0]}:{node[1]}?ssl_ca_certs={quote(SECURE['ssl_ca_certs'], safe='')}"


def lock(nodes, prefix, protocol):
    name = f"{prefix}-lock"
    here, there = connect(nodes[0], protocol=protocol), connect(nodes[1], protocol=protocol)
    held = here.lock(name, timeout=30)
    assert held.acquire(blocking=False)
    assert not there.lock(name, timeout=30).acquire(blocking=False)
    assert held.extend(60) and 80_000 < here.pttl(name) <= 90_000
    assert held.reacquire() and 20_000 < there.pttl(name) <= 30_000
    there.set(name, "another holder")
    try:
        held.release()
        raise AssertionError("a lock of another holder was released")
    except LockNotOwnedError:
        pass
    assert there.get(name) == b"another holder"
    there.delete(name)
    with there.lock(name, timeout=30):
        assert not here.lock(name).acquire(blocking=False)
    assert here.exists(name) == 0
    here.close()
    there.close()


def counters(nodes, prefix):
    """No update of concurrent scripts is lost, through whichever node each is sent."""
    name, failures = f"{prefix}-counter", []
    source = "local n = tonumber(redis.call('get', KEYS[1]) or 0); redis.call('set', KEYS[1], n + ARGV[1]); return n"

    def count(node):
        try:
            client = connect(node)
            add = client.register_script(source)
            for _ in range(25):
                add(keys=[name], args=[2])
            client.close()
        except redis.RedisError as error:
            failures.append(error)

    threads = [threading.Thread(target=count, args=(node,)) for node in nodes for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = connect(nodes[-1])
    assert not failures, failures
    assert client.get(name) == str(2 * 25 * len(threads)).encode(), client.get(name)
    client.close()


def scripts(nodes, prefix):
    client = connect(nodes[0])
    digest = client.script_load("return {KEYS[1], ARGV[1], 3.7, false}")
    assert client.script_exists(digest, "0" * 40) == [True, False]
    assert client.evalsha(digest, 1, prefix, "x") == [prefix.encode(), b"x", 3, None]
    assert client.eval_ro("return redis.call('get', KEYS[1])", 1, f"{prefix}-none") is None
    for source, expected in [
        ("return redis.call('get', 'undeclared')", "does not declare"),
        ("while true do end", "ran too long"),
        ("x = 1", "readonly"),
        ("return x", "nonexistent global variable 'x'"),
    ]:
        try:
            client.eval(source, 0)
            raise AssertionError(f"{source} succeeded")
        except redis.ResponseError as error:
            assert expected in str(error), error
    unknown = client.script_load(f"return '{prefix} is known to one node'")
    other = connect(nodes[1])
    try:
        other.evalsha(unknown, 0)
        raise AssertionError("a node knew the script of another one")
    except NoScriptError:
        pass
    # A script object sends the text after that error.
    assert other.register_script(f"return '{prefix} is known to one node'")() == f"{prefix} is known to one node".encode()
    client.close()
    other.close()


def rate_limits(nodes, prefix):
    storage = RedisStorage(url_of(nodes[0]))
    item = limits.parse("3/hour")
    for strategy in (FixedWindowRateLimiter, SlidingWindowCounterRateLimiter):
        limiter, name = strategy(storage), f"{{{prefix}-{strategy.__name__}}}"
        assert [limiter.hit(item, name) for _ in range(5)] == [True, True, True, False, False]
        assert limiter.get_window_stats(item, name).remaining == 0

    app = flask.Flask(prefix)
    limiter = flask_limiter.Limiter(lambda: prefix, app=app, storage_uri=url_of(nodes[1]), default_limits=["2 per hour"])

    @app.route("/")
    def index():
        return "ok"

    with app.test_client() as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
    assert limiter.storage.check()


def django_lock(nodes, prefix):
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url_of(nodes[0])}
    settings.configure(CACHES={"default": cache})
    django.setup()
    from django.core.cache import cache

    with cache.lock(f"{prefix}-django", timeout=30):
        assert not cache.lock(f"{prefix}-django", timeout=30).acquire(blocking=False)
    assert cache.lock(f"{prefix}-django", timeout=30).acquire(blocking=False)
    # Counts with a script, and keeps the time to live.
    cache.set(f"{prefix}-count", 1, timeout=100)
    assert cache.incr(f"{prefix}-count", 41) == 42 and 90 < cache.ttl(f"{prefix}-count") <= 100


def main():
    nodes = [address.rsplit(":", 1) for address in sys.argv[1:]]
    prefix = "py-scripts"
    for protocol in (2, 3):
        lock(nodes, f"{prefix}-{protocol}", protocol)
    scripts(nodes, prefix)
    counters(nodes, prefix)
    rate_limits(nodes, prefix)
    django_lock(nodes, prefix)
    print("redis-py's lock, limits, Flask-Limiter, django-redis" + (" with TLS and a token: ok" if SECURE else ": ok"))


main()
