"""Reads a setting often, from a cache beside the program that a node keeps up to date.

usage: cache.py NODE,NODE,… KEY

The nodes are addresses of the Redis protocol. Needs redis-py 8 or later. Prints the value whenever it is another one.
"""

import sys
import time

import redis
from redis.cache import CacheConfig


class CachedReads:
    """Reads keys from memory, and from a node those that have changed or were not read yet."""

    def __init__(self, nodes):
        self.nodes = nodes.split(",")
        self.client = None

    def get(self, key):
        while True:
            try:
                return self.connected().get(key)
            except redis.RedisError:
                self.leave()

    def connected(self):
        if self.client is None:
            host, port = self.nodes[0].rsplit(":", 1)
            self.client = redis.Redis(host=host, port=int(port), protocol=3, socket_timeout=5, decode_responses=True,
                                      cache_config=CacheConfig(max_size=10_000))
        return self.client

    def leave(self):
        """The cache of the old connection goes with it: nobody tells what has changed meanwhile."""
        self.client.close()
        self.client = None
        self.nodes.append(self.nodes.pop(0))
        time.sleep(0.2)


if __name__ == "__main__":
    reads, shown = CachedReads(sys.argv[1]), None
    while True:
        value = reads.get(sys.argv[2])
        if value != shown:
            print(value or "deleted", flush=True)
        shown = value
        time.sleep(0.01)
