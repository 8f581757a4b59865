// rueidis, with its client-side cache and its locks.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// ofRueidis are the options of a client of one node, or of the cluster if there are several addresses.
func ofRueidis(addresses ...string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       addresses,
		TLSConfig:         secure,
		Password:          token,
		ForceSingleClient: len(addresses) == 1,
	}
}

// cached reads a key through two clients that cache it, while a third one writes it.
func cached(here, there, writer rueidis.Client, name string) {
	read := func(client rueidis.Client) rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(name).Cache(), time.Hour)
	}
	set := func(value string) {
		must("OK", writer.Do(ctx, writer.B().Set().Key(name).Value(value).Build()).Error())
	}
	set("first")
	for _, client := range []rueidis.Client{here, there} {
		check("a cached read", must(read(client).ToString()) == "first")
		// The invalidation of the write may come after the read.
		await("a read from the cache", func() bool { return read(client).IsCacheHit() })
	}
	for _, value := range []string{"second", "third"} {
		set(value)
		for _, client := range []rueidis.Client{here, there} {
			await(value+" replaces a cached value", func() bool { return must(read(client).ToString()) == value })
		}
	}
	must(0, writer.Do(ctx, writer.B().Flushall().Build()).Error())
	await("a removal of all keys empties the cache", func() bool { return rueidis.IsRedisNil(read(here).Error()) })
}

// commands runs pipelines, a transaction and a script.
func commands(client rueidis.Client, prefix string) {
	key := func(name string) string { return "{" + prefix + "}" + name }
	var sets, gets rueidis.Commands
	for number := range 1000 {
		name := fmt.Sprintf("%s:%d", prefix, number)
		sets = append(sets, client.B().Set().Key(name).Value(fmt.Sprint(number)).Build())
		gets = append(gets, client.B().Get().Key(name).Build())
	}
	for _, result := range client.DoMulti(ctx, sets...) {
		check("set", result.Error() == nil)
	}
	for number, result := range client.DoMulti(ctx, gets...) {
		check("get", must(result.ToString()) == fmt.Sprint(number))
	}
	err := client.Dedicated(func(client rueidis.DedicatedClient) error {
		must(0, client.Do(ctx, client.B().Watch().Key(key("t")).Build()).Error())
		results := client.DoMulti(ctx, client.B().Multi().Build(), client.B().Incr().Key(key("t")).Build(), client.B().Exec().Build())
		values := must(results[2].ToArray())
		check("transaction", len(values) == 1 && must(values[0].ToInt64()) == 1)
		return nil
	})
	check("dedicated", err == nil)
	script := rueidis.NewLuaScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	check("script", must(script.Exec(ctx, client, []string{key("t")}, []string{"41"}).ToInt64()) == 42)
}

// heldOnce takes locks, which learn by invalidations that they are released or lost.
func heldOnce(here, there rueidis.ClientOption, name string) {
	locker := func(option rueidis.ClientOption) rueidislock.Locker {
		// The nodes are one store, so one key is a majority. A node under load needs more than 20 ms.
		return must(rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: option, KeyMajority: 1, KeyValidity: time.Minute, TryNextAfter: 10 * time.Second,
		}))
	}
	first, second := locker(here), locker(there)
	defer first.Close()
	defer second.Close()
	held, release, err := first.WithContext(ctx, name)
	check("lock", err == nil)
	_, _, err = second.TryWithContext(ctx, name)
	check("a lock of two holders", errors.Is(err, rueidislock.ErrNotLocked))
	next := make(chan context.CancelFunc)
	go func() {
		_, release, err := second.WithContext(ctx, name)
		check("lock of the next", err == nil)
		next <- release
	}()
	release()
	(<-next)()
	check("a released lock ends its context", held.Err() != nil)

	lost, release, err := first.WithContext(ctx, name)
	check("lock again", err == nil)
	defer release()
	_, take, err := second.ForceWithContext(ctx, name)
	check("lock by force", err == nil)
	defer take()
	select {
	case <-lost.Done():
	case <-time.After(time.Minute):
		check("a holder learns that its lock is lost", false)
	}
}

// throughRueidis runs all of these through clients of the nodes, and through clients of the cluster.
func throughRueidis(addresses []string) {
	var nodes []rueidis.Client
	for number, address := range addresses {
		client := must(rueidis.NewClient(ofRueidis(address)))
		defer client.Close()
		commands(client, fmt.Sprintf("rueidis%d", number))
		nodes = append(nodes, client)
	}
	prefixed := ofRueidis(addresses[1])
	prefixed.ClientTrackingOptions = []string{"PREFIX", "rueidis-", "BCAST"}
	broadcast := must(rueidis.NewClient(prefixed))
	defer broadcast.Close()
	cluster := must(rueidis.NewClient(ofRueidis(addresses...)))
	defer cluster.Close()
	commands(cluster, "rueidis-cluster")
	cached(nodes[0], broadcast, nodes[2], "rueidis-cached")
	cached(cluster, nodes[1], nodes[0], "rueidis-cluster-cached")
	heldOnce(ofRueidis(addresses[0]), ofRueidis(addresses[1]), "rueidis")
	heldOnce(ofRueidis(addresses...), ofRueidis(addresses[2]), "rueidis-cluster")
}
