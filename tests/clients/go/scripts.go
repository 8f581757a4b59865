// Libraries that need Lua scripts: bsm/redislock, redsync and redis_rate, and go-redis' own scripts.
package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// locks acquires, extends and releases locks through both libraries.
func locks(here, there redis.UniversalClient, prefix string) {
	name := prefix + "-redislock"
	lock := must(redislock.Obtain(ctx, here, name, 30*time.Second, nil))
	_, err := redislock.Obtain(ctx, there, name, 30*time.Second, nil)
	check("a lock of two holders", errors.Is(err, redislock.ErrNotObtained))
	check("refresh", lock.Refresh(ctx, time.Minute, nil) == nil)
	left := must(lock.TTL(ctx))
	check("ttl", left > 50*time.Second && left <= time.Minute)
	check("release", lock.Release(ctx) == nil)
	check("release again", errors.Is(lock.Release(ctx), redislock.ErrLockNotHeld))

	// The nodes are one store, so one of them is a whole pool.
	mutex := func(client redis.UniversalClient) *redsync.Mutex {
		return redsync.New(goredis.NewPool(client)).NewMutex(prefix+"-redsync", redsync.WithTries(1))
	}
	first, second := mutex(here), mutex(there)
	check("lock", first.Lock() == nil)
	check("a mutex of two holders", second.Lock() != nil)
	check("extend", must(first.Extend()))
	check("valid", must(first.Valid()))
	check("unlock", must(first.Unlock()))
	check("lock of the next", second.Lock() == nil)
	ok, err := first.Unlock()
	check("unlock of a former holder", !ok && err != nil)
	check("unlock", must(second.Unlock()))
}

// limits counts requests through several clients against one limit.
func limits(clients []redis.UniversalClient, name string) {
	limit := redis_rate.PerHour(5)
	for number := range 8 {
		limiter := redis_rate.NewLimiter(clients[number%len(clients)])
		result := must(limiter.Allow(ctx, name, limit))
		check(fmt.Sprintf("request %d within a limit of 5", number), result.Allowed == 1 == (number < 5))
		check("remaining", result.Remaining == max(4-number, 0))
	}
	check("reset", redis_rate.NewLimiter(clients[0]).Reset(ctx, name) == nil)
	result := must(redis_rate.NewLimiter(clients[0]).AllowAtMost(ctx, name, limit, 9))
	check("what is left of a limit", result.Allowed == 5 && result.Remaining == 0)
}

// counters adds by concurrent scripts, none of which may be lost.
func counters(clients []redis.UniversalClient, prefix string) {
	add := redis.NewScript("local n = tonumber(redis.call('get', KEYS[1]) or '0'); redis.call('set', KEYS[1], n + ARGV[1]); return n")
	name := prefix + "-counter"
	var group sync.WaitGroup
	for _, client := range clients {
		for range 2 {
			group.Go(func() {
				for range 25 {
					must(add.Run(ctx, client, []string{name}, 2).Result())
				}
			})
		}
	}
	group.Wait()
	count := must(clients[0].Get(ctx, name).Int())
	check(fmt.Sprintf("a counter of %d", count), count == 2*2*25*len(clients))
}

// scripts runs all of these through clients of the nodes, and through a client of the cluster.
func scripts(clients []redis.UniversalClient, cluster redis.UniversalClient) {
	locks(clients[0], clients[1], "go-scripts")
	locks(cluster, clients[0], "go-scripts-cluster")
	limits(clients, "go-scripts")
	limits([]redis.UniversalClient{cluster}, "go-scripts-cluster")
	counters(clients, "go-scripts")
	counters([]redis.UniversalClient{cluster}, "go-scripts-cluster")
}
