"""Runs redis-py against a cluster: RESP2, RESP3, and its cluster client. Arguments are the addresses of its nodes. With TEST_CA
and TEST_TOKEN_FILE in the environment it connects with TLS and a token."""

import os
import socket
import ssl
import sys
import time
import urllib.request

import redis
from redis.cache import CacheConfig
from redis.cluster import ClusterNode, RedisCluster

SECURE = {}
if "TEST_CA" in os.environ:
    with open(os.environ["TEST_TOKEN_FILE"], encoding="ascii") as file:
        SECURE = {"ssl": True, "ssl_ca_certs": os.environ["TEST_CA"], "password": file.read().strip()}


def script(client, prefix):
    def key(name):
        return f"{{{prefix}}}{name}"

    assert client.set(key("a"), "1") is True
    assert client.get(key("a")) == b"1"
    assert client.get(key("none")) is None
    assert client.incrby(key("a"), 41) == 42
    assert client.set(key("a"), "x", nx=True) is None
    assert client.set(key("a"), "x", ex=60, get=True) == b"42"
    assert 50 < client.ttl(key("a")) <= 60
    assert client.persist(key("a"))
    assert client.append(key("a"), "yz") == 3
    assert client.strlen(key("a")) == 3
    assert client.type(key("a")) == b"string"
    everything = bytes(range(256))
    assert client.set(key("bytes"), everything)
    assert client.get(key("bytes")) == everything
    assert client.getdel(key("bytes")) == everything
    assert client.mset({key("x"): "1", key("y"): "2"})
    assert client.mget(key("x"), key("y"), key("z")) == [b"1", b"2", None]

    with client.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.set(f"{prefix}:{number}", number)
        for number in range(1000):
            pipe.get(f"{prefix}:{number}")
        replies = pipe.execute()
    assert replies[:1000] == [True] * 1000
    assert replies[1000:] == [str(number).encode() for number in range(1000)]

    assert client.delete(key("a"), key("x"), key("y"), key("none")) == 3
    assert client.exists(key("a")) == 0
    try:
        client.execute_command("LPUSH", key("list"), "a")
        raise AssertionError("LPUSH succeeded")
    except redis.RedisError as error:
        # The cluster client asks the server for its commands first, and says so itself.
        assert "unknown command" in str(error) or "doesn't exist" in str(error), error


def transactions(client, prefix):
    key = f"{{{prefix}}}t"
    with client.pipeline(transaction=True) as pipe:
        pipe.set(key, 1).incr(key).get(key)
        assert pipe.execute() == [True, 2, b"2"]
    with client.pipeline(transaction=True) as pipe:
        pipe.watch(key)
        seen = int(pipe.get(key))
        pipe.multi()
        pipe.set(key, seen + 1)
        assert pipe.execute() == [True]
        pipe.watch(key)
        client.set(key, "other")
        pipe.multi()
        pipe.set(key, "mine")
        try:
            pipe.execute()
            raise AssertionError("a transaction whose watch fails went through")
        except redis.WatchError:
            pass
    assert client.get(key) == b"other"


def masters(nodes, protocol):
    """Each key is on one master, and every node has one role. A leadership may change meanwhile: then it is looked at anew."""
    plain = redis.Redis(host=nodes[0][0], port=int(nodes[0][1]), protocol=protocol, **SECURE)
    assert plain.info("server")["redis_mode"] == "standalone"
    prefix = f"py-masters-{protocol}"
    keys = sorted(f"{prefix}:{number}".encode() for number in range(30))
    for attempt in range(20):
        startup = [ClusterNode(host, int(port)) for host, port in nodes]
        cluster = RedisCluster(startup_nodes=startup, protocol=protocol, **SECURE)
        for key in keys:
            cluster.set(key, "v")
        primaries = cluster.get_primaries()
        found = [
            sorted(cluster.scan_iter(match=f"{prefix}:*", count=100)),
            sorted(key for node in primaries for key in cluster.keys(f"{prefix}:*", target_nodes=node)),
        ]
        counted = sum(cluster.dbsize(target_nodes=node) for node in primaries)
        roles = {node.name: cluster.info(target_nodes=node) for node in cluster.get_nodes()}
        told = {node.name: node.server_type for node in cluster.get_nodes()}
        is_so = (
            found == [keys, keys]
            and counted == plain.dbsize()
            and len(roles) == len(nodes)
            and all(info["redis_mode"] == "cluster" for info in roles.values())
            and all((info["role"] == "master") == (told[name] == "primary") for name, info in roles.items())
        )
        cluster.close()
        if is_so:
            return plain.close()
        time.sleep(0.5)
    raise AssertionError(f"masters do not share the keys: {found}, {counted}, {roles}, {told}")


def put(node, key, value):
    """Writes a key over HTTP."""
    host, port = node
    scheme, tls, headers = "http", None, {}
    if SECURE:
        scheme, tls = "https", ssl.create_default_context(cafile=SECURE["ssl_ca_certs"])
        headers = {"Authorization": f"Bearer {SECURE['password']}"}
    # scripts/test-clients has chosen the ports.
    url = f"{scheme}://{host}:{int(port) - 3}/v1/keys/{key}"
    request = urllib.request.Request(url, value.encode(), headers, method="PUT")
    with urllib.request.urlopen(request, timeout=30, context=tls) as answer:
        assert answer.status in (200, 201), answer.status


def eventually(what, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def caching(nodes):
    """A client that caches keys sees what other clients write through other nodes, over any protocol."""
    for number, (host, port) in enumerate(nodes):
        other = nodes[(number + 1) % len(nodes)]
        client = redis.Redis(host=host, port=int(port), protocol=3, cache_config=CacheConfig(), **SECURE)
        cache, key = client.get_cache(), f"py-cached-{number}"
        put(other, key, "first")

        def is_cached():
            """The invalidation of the write may come after the first read."""
            assert client.get(key) == b"first"
            for entry in cache.collection.values():
                entry.cache_value = b"from the cache"
            return client.get(key) == b"from the cache"

        eventually("a read from the cache", is_cached)
        for value in ("second", "third"):
            put(other, key, value)
            eventually(f"{value} replaces a cached value", lambda: client.get(key) == value.encode())
        # Nobody tells a client without a connection what has changed.
        connection = client.connection_pool.get_connection()
        client.connection_pool.release(connection)
        connection._conn._sock.shutdown(socket.SHUT_RDWR)
        put(other, key, "fourth")
        eventually("a broken connection empties the cache", lambda: client.get(key) == b"fourth")
        writer = redis.Redis(host=other[0], port=int(other[1]), **SECURE)
        writer.flushall()
        eventually("a removal of all keys empties the cache", lambda: client.get(key) is None)
        writer.close()
        client.close()


def messages(nodes, protocol):
    """What is published through one node reaches the subscribers of another."""
    for number, (host, port) in enumerate(nodes):
        other = nodes[(number + 1) % len(nodes)]
        subscribing = redis.Redis(host=host, port=int(port), protocol=protocol, **SECURE)
        publishing = redis.Redis(host=other[0], port=int(other[1]), protocol=protocol, **SECURE)
        channel, result = f"py-channel-{number}-{protocol}", f"py-result-{number}-{protocol}"
        pubsub = subscribing.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(channel)
        pubsub.psubscribe(f"{channel}*")
        eventually(
            "the subscriptions begin",
            lambda: pubsub.get_message() is None
            and subscribing.pubsub_numsub(channel) == [(channel.encode(), 1)]
            and subscribing.pubsub_numpat() == 1,
        )

        def received():
            """The next two messages, of the channel and of the pattern."""
            found = []
            eventually("messages arrive", lambda: found.extend(filter(None, [pubsub.get_message()])) or len(found) == 2)
            return sorted((message["type"], message["data"]) for message in found)

        publishing.publish(channel, b"one\r\n")
        assert received() == [("message", b"one\r\n"), ("pmessage", b"one\r\n")]
        # As Celery stores a result.
        with publishing.pipeline() as pipe:
            pipe.set(result, b"two", ex=60)
            pipe.publish(channel, b"two")
            assert pipe.execute() == [True, 0]
        assert received() == [("message", b"two"), ("pmessage", b"two")]
        assert subscribing.get(result) == b"two"
        pubsub.close()
        subscribing.close()
        publishing.close()


def main():
    nodes = [address.rsplit(":", 1) for address in sys.argv[1:]]
    for number, (host, port) in enumerate(nodes):
        for protocol in (2, 3):
            client = redis.Redis(host=host, port=int(port), protocol=protocol, **SECURE)
            prefix = f"py{number}-{protocol}"
            script(client, prefix)
            transactions(client, prefix)
            assert len(set(client.scan_iter(match=f"{prefix}:*", count=100))) == 1000
            assert client.info("server")["redis_version"]
            assert client.config_get("append*")["appendonly"] == "yes"
            if SECURE:
                assert client.acl_whoami() in ("root", b"root"), client.acl_whoami()
                assert client.acl_getuser("root")["enabled"]
            assert client.execute_command("TL.SET", f"{prefix}:v", "one", 0) > 0
            client.close()
    for protocol in (2, 3):
        startup = [ClusterNode(host, int(port)) for host, port in nodes]
        cluster = RedisCluster(startup_nodes=startup, protocol=protocol, **SECURE)
        script(cluster, f"py-cluster-{protocol}")
        assert cluster.keyslot("foo") == 12182
        cluster.close()
        masters(nodes, protocol)
        messages(nodes, protocol)
    caching(nodes)
    print("redis-py with TLS and a token: ok" if SECURE else "redis-py: ok")


main()
