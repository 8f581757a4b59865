"""Runs Python tools that keep results and caches in Redis: Celery's result backend, dogpile.cache, Flask-Caching, aiocache. Arguments
are the addresses of the nodes. With TEST_CA and TEST_TOKEN_FILE in the environment it connects with TLS and a token."""

import asyncio
import os
import ssl
import sys
import warnings
from urllib.parse import quote

import celery
import dogpile.cache
import flask
import flask_caching
import redis
from aiocache import Cache
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
from celery.contrib.testing.worker import start_worker

CA, TOKEN = os.environ.get("TEST_CA"), None
if CA:
    with open(os.environ["TEST_TOKEN_FILE"], encoding="ascii") as file:
        TOKEN = file.read().strip()


def url_of(node):
    if not CA:
        return f"redis://{node[0]}:{node[1]}"
    arguments = f"ssl_cert_reqs=required&ssl_ca_certs={quote(CA, safe='')}"
    return f"rediss://:{quote(TOKEN, safe='')}@{node[0]}:{node[1]}?{arguments}"


def celery_results(nodes):
    """Results go through one node, and clients of another one wait for them. The broker is in this process: Celery's broker in Redis
    needs lists."""
    app = celery.Celery("tidelock-test", broker="memory://", backend=url_of(nodes[0]), set_as_current=False)
    app.conf.update(result_expires=3600, broker_transport_options={"polling_interval": 0.01})

    @app.task
    def add(left, right):
        return left + right

    @app.task
    def refuse():
        raise ValueError("refused")

    asking = celery.Celery("tidelock-test", broker="memory://", backend=url_of(nodes[1]), set_as_current=False)
    with start_worker(app, pool="solo", concurrency=1, loglevel="CRITICAL", perform_ping_check=False):
        for number in range(10):
            assert asking.AsyncResult(add.delay(number, 1).id).get(timeout=60) == number + 1
        failed = asking.AsyncResult(refuse.delay().id)
        try:
            failed.get(timeout=60)
            raise AssertionError("a task that failed has a result")
        except ValueError as error:
            assert str(error) == "refused", error
        group = celery.group(add.s(number, number) for number in range(5)).apply_async()
        assert group.get(timeout=60) == [0, 2, 4, 6, 8]
        result = asking.AsyncResult(add.delay(40, 2).id)
        assert result.get(timeout=60) == 42 and result.successful()
        with redis.Redis.from_url(url_of(nodes[2])) as client:
            key = f"celery-task-meta-{result.id}"
            assert 3500 < client.ttl(key) <= 3600
            result.forget()
            assert client.exists(key) == 0


def dogpile_regions(nodes):
    """Regions of two nodes share values, and a lock while a value is made."""

    def region_of(node):
        # A lock that each thread holds by itself could not be released by another one.
        arguments = {"url": url_of(node), "redis_expiration_time": 600, "distributed_lock": True, "thread_local_lock": False}
        return dogpile.cache.make_region(key_mangler=lambda key: f"{{py-dogpile}}{key}").configure(
            "dogpile.cache.redis", expiration_time=300, arguments=arguments
        )

    here, there = (region_of(node) for node in nodes[:2])
    made = []

    def make():
        made.append(1)
        mutex = there.backend.get_mutex(here.key_mangler("a"))
        assert mutex.locked() and not mutex.acquire(wait=False)
        return {"made": len(made)}

    assert here.get_or_create("a", make) == {"made": 1}
    assert there.get_or_create("a", make) == {"made": 1}
    there.delete("a")
    assert here.get_or_create("a", make) == {"made": 2}
    here.set_multi({"x": 1, "y": 2})
    assert there.get_multi(["x", "y"]) == [1, 2]
    there.delete_multi(["x", "y"])
    assert here.get("x") is dogpile.cache.api.NO_VALUE


def flask_cache(nodes):
    made, app = [], flask.Flask("py-flask-caching")

    def cache_of(node, prefix):
        config = {"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url_of(node), "CACHE_KEY_PREFIX": prefix}
        return flask_caching.Cache(app, config=config)

    here, there = (cache_of(node, "{py-flask}") for node in nodes[:2])

    @app.route("/")
    @here.cached(timeout=600)
    def index():
        made.append(1)
        return f"{len(made)}"

    with app.test_client() as client:
        assert [client.get("/").data for _ in range(3)] == [b"1"] * 3
        with app.app_context():
            # With a prefix it removes the keys that have it.
            assert there.clear()
        assert client.get("/").data == b"2"
    with app.app_context():
        assert here.set("x", {"a": 1}) and there.get("x") == {"a": 1}
        assert there.set_many({"y": 1, "z": 2}) and here.get_many("y", "z") == [1, 2]
        assert here.delete_many("y", "z") and not there.has("y")
        # Without one it removes all keys.
        assert cache_of(nodes[2], "").clear() and there.get("x") is None


async def asynchronous_cache(nodes):
    def cache_of(node, **options):
        cache = Cache(Cache.REDIS, endpoint=node[0], port=int(node[1]), password=TOKEN, namespace="{py-aiocache}", **options)
        if CA:
            cache.client = redis.asyncio.Redis(
                host=node[0], port=int(node[1]), password=TOKEN, ssl=True, ssl_ca_certs=CA, ssl_cert_reqs=ssl.CERT_REQUIRED
            )
        return cache

    async with cache_of(nodes[0]) as here, cache_of(nodes[1]) as there:
        assert await here.set("a", {"b": 1}, ttl=600)
        assert await there.get("a") == {"b": 1}
        assert await here.multi_set([("x", 1), ("y", 2)], ttl=600)
        assert await there.multi_get(["x", "y", "none"]) == [1, 2, None]
        assert await here.increment("count", 41) == 41 and await there.increment("count") == 42
        async with RedLock(here, "lock", lease=60):
            try:
                await there.add("lock-lock", "taken")
                raise AssertionError("a lock of two holders")
            except ValueError:
                pass
        assert not await there.exists("lock-lock")
        async with OptimisticLock(here, "a") as lock:
            await lock.cas({"b": 2})
        try:
            async with OptimisticLock(here, "a") as lock:
                await there.set("a", "other")
                await lock.cas({"b": 3})
            raise AssertionError("an update is lost")
        except OptimisticLockError:
            pass
        assert await here.get("a") == "other"
        assert await there.clear() and await here.get("a") is None


def main():
    nodes = [address.rsplit(":", 1) for address in sys.argv[1:]]
    # Celery warns of a worker that runs as root.
    warnings.simplefilter("ignore")
    celery_results(nodes)
    dogpile_regions(nodes)
    flask_cache(nodes)
    asyncio.run(asynchronous_cache(nodes))
    print("Celery's results, dogpile.cache, Flask-Caching, aiocache" + (" with TLS and a token: ok" if CA else ": ok"))


main()
