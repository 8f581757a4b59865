// Runs go-redis, libraries that use it, and rueidis, against a cluster: plain and cluster client, RESP2 and RESP3. Arguments are the addresses of its nodes. With TEST_CA
// and TEST_TOKEN_FILE in the environment it connects with TLS and a token.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(what string, ok bool) {
	if !ok {
		panic(what)
	}
}

// What all connections need: nothing, or TLS and a token.
func security() (*tls.Config, string) {
	ca := os.Getenv("TEST_CA")
	if ca == "" {
		return nil, ""
	}
	roots := x509.NewCertPool()
	check("the authority", roots.AppendCertsFromPEM(must(os.ReadFile(ca))))
	token := must(os.ReadFile(os.Getenv("TEST_TOKEN_FILE")))
	return &tls.Config{RootCAs: roots}, strings.TrimSpace(string(token))
}

var secure, token = security()

func ofCluster(addresses []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addresses, TLSConfig: secure, Password: token}
}

func script(client redis.UniversalClient, prefix string) {
	key := func(name string) string { return "{" + prefix + "}" + name }
	check("set", must(client.Set(ctx, key("a"), "1", 0).Result()) == "OK")
	check("get", must(client.Get(ctx, key("a")).Result()) == "1")
	_, err := client.Get(ctx, key("none")).Result()
	check("nil", errors.Is(err, redis.Nil))
	check("incr", must(client.IncrBy(ctx, key("a"), 41).Result()) == 42)
	check("setnx", !must(client.SetNX(ctx, key("a"), "x", 0).Result()))
	check("getdel", must(client.GetDel(ctx, key("a")).Result()) == "42")
	check("mset", must(client.MSet(ctx, key("x"), "1", key("y"), "2").Result()) == "OK")
	values := must(client.MGet(ctx, key("x"), key("y"), key("z")).Result())
	check("mget", len(values) == 3 && values[0] == "1" && values[1] == "2" && values[2] == nil)
	check("expire", must(client.Expire(ctx, key("x"), time.Minute).Result()))
	ttl := must(client.TTL(ctx, key("x")).Result())
	check("ttl", ttl > 50*time.Second && ttl <= time.Minute)
	check("append", must(client.Append(ctx, key("x"), "bc").Result()) == 3)

	pipe := client.Pipeline()
	for number := range 1000 {
		pipe.Set(ctx, fmt.Sprintf("%s:%d", prefix, number), number, 0)
	}
	for number := range 1000 {
		pipe.Get(ctx, fmt.Sprintf("%s:%d", prefix, number))
	}
	replies := must(pipe.Exec(ctx))
	for number := range 1000 {
		check("pipeline", replies[1000+number].(*redis.StringCmd).Val() == fmt.Sprint(number))
	}

	err = client.Watch(ctx, func(tx *redis.Tx) error {
		seen := must(tx.Get(ctx, key("y")).Int())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key("y"), seen+1, 0)
			pipe.Get(ctx, key("y"))
			return nil
		})
		return err
	}, key("y"))
	check("transaction", err == nil)
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		must(client.Set(ctx, key("y"), "other", 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key("y"), "mine", 0)
			return nil
		})
		return err
	}, key("y"))
	check("a transaction whose watch fails", errors.Is(err, redis.TxFailedErr))
	check("get", must(client.Get(ctx, key("y")).Result()) == "other")
	check("del", must(client.Del(ctx, key("x"), key("y"), key("z")).Result()) == 2)
	err = client.Do(ctx, "LPUSH", key("list"), "a").Err()
	check("what there is not is an error", err != nil && err.Error()[:4] == "ERR ")
}

// masters tells whether each key is on one master.
func masters(addresses []string) bool {
	cluster := redis.NewClusterClient(ofCluster(addresses))
	defer cluster.Close()
	plain := redis.NewClient(&redis.Options{Addr: addresses[0], TLSConfig: secure, Password: token})
	defer plain.Close()
	const keys = 30
	for number := range keys {
		must(cluster.Set(ctx, fmt.Sprintf("go-masters:%d", number), "v", 0).Result())
	}
	var mutex sync.Mutex
	found, met, counted := map[string]bool{}, 0, int64(0)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		mutex.Lock()
		defer mutex.Unlock()
		scan := master.Scan(ctx, 0, "go-masters:*", 100).Iterator()
		for scan.Next(ctx) {
			found[scan.Val()] = true
			met++
		}
		size, err := master.DBSize(ctx).Result()
		counted += size
		return errors.Join(scan.Err(), err)
	})
	return err == nil && len(found) == keys && met == keys && counted == must(plain.DBSize(ctx).Result())
}

func main() {
	addresses := os.Args[1:]
	var clients []redis.UniversalClient
	for number, address := range addresses {
		for _, protocol := range []int{2, 3} {
			options := &redis.Options{Addr: address, Protocol: protocol, TLSConfig: secure, Password: token}
			client := redis.NewClient(options)
			script(client, fmt.Sprintf("go%d-%d", number, protocol))
			found := map[string]bool{}
			scan := client.Scan(ctx, 0, fmt.Sprintf("go%d-%d:*", number, protocol), 100).Iterator()
			for scan.Next(ctx) {
				found[scan.Val()] = true
			}
			check("scan", scan.Err() == nil && len(found) == 1000)
			clients = append(clients, client)
		}
	}
	cluster := redis.NewClusterClient(ofCluster(addresses))
	script(cluster, "go-cluster")
	scripts(clients, cluster)
	caching(addresses)
	throughRueidis(addresses)
	// A leadership may change meanwhile: then it is looked at anew.
	for attempt := 1; !masters(addresses); attempt++ {
		check("each key is on one master", attempt < 20)
		time.Sleep(500 * time.Millisecond)
	}
	for _, client := range clients {
		check("close", client.Close() == nil)
	}
	stale := ofCluster(addresses)
	stale.ReadOnly = true
	readonly := redis.NewClusterClient(stale)
	must(readonly.Set(ctx, "go-readonly", "1", 0).Result())
	for must(readonly.Exists(ctx, "go-readonly").Result()) == 0 {
		// A replica is behind by as much as it is; it catches up.
		time.Sleep(time.Millisecond)
	}
	if secure != nil {
		fmt.Println("go-redis, redislock, redsync, redis_rate, rueidis with TLS and a token: ok")
		return
	}
	fmt.Println("go-redis, redislock, redsync, redis_rate, rueidis: ok")
}
