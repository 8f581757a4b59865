// go-redis with its client-side cache.
package main

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

func await(what string, holds func() bool) {
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		check(what, time.Now().Before(deadline))
	}
}

// caching reads keys through a client of each node that caches them, while a client of another node writes them.
func caching(addresses []string) {
	for number, address := range addresses {
		cache := redis.NewLocalCache(redis.CacheConfig{MaxEntries: 100})
		options := redis.Options{Addr: address, Protocol: 3, TLSConfig: secure, Password: token, ClientSideCache: cache}
		client := redis.NewClient(&options)
		options.Addr, options.ClientSideCache = addresses[(number+1)%len(addresses)], nil
		writer := redis.NewClient(&options)
		const key = "go-cached"
		must(writer.Set(ctx, key, "first", 0).Result())
		await("a key is cached", func() bool { return must(client.Get(ctx, key).Result()) == "first" && cache.Len() == 1 })
		for _, value := range []string{"second", "third"} {
			must(writer.Set(ctx, key, value, 0).Result())
			await(value+" replaces a cached value", func() bool { return must(client.Get(ctx, key).Result()) == value })
		}
		must(writer.FlushAll(ctx).Result())
		await("a removal of all keys empties the cache", func() bool { return errors.Is(client.Get(ctx, key).Err(), redis.Nil) })
		check("close", client.Close() == nil && writer.Close() == nil)
	}
}
