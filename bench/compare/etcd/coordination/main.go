// The load of bench/compare/coordination: the same clients for a Tidelock cluster over HTTP and for an etcd cluster with
// its own client. Each subcommand prints one JSON object.
//
//	coordination watch    STORE WATCHERS RATE SECONDS PORT,...   RATE puts a second; WATCHERS a node see each of them
//	coordination lease    STORE CLIENTS SECONDS PORT,...         closed loop: grants of 60 s; they are revoked afterwards
//	coordination txn      STORE CLIENTS SECONDS PORT,...         closed loop: a put if the key exists, over 10,000 keys
//	coordination lock     STORE CLIENTS SECONDS PORT,...         CLIENTS take one lock in turns and release it at once
//	coordination renew    STORE LEASES SECONDS PORT,...          LEASES of 10 s, each renewed every 3.3 s
//	coordination hear     STORE WATCHERS PUTS PORT,...           as watch, until PUTS of another process were seen
//	coordination observe  STORE WATCHERS SECONDS PORT,...        idle watchers, for measuring the nodes from outside
//
// STORE is tidelock or etcd. A latency of `watch` begins before the put is sent and ends when a watcher has its event. One
// of `lock` begins before the release is sent and ends when the next client knows that it holds the lock. `renew` sends
// the leases of one node in groups of 100 where the store can, which only Tidelock can.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	timeout    = 10 * time.Second
	warmUp     = time.Second
	keys       = 10_000
	valueBytes = 32
	leaseTTL   = 60 * time.Second
	renewTTL   = 10 * time.Second
	renewGroup = 100
)

// A client of one store, connected with one node.
type client interface {
	put(ctx context.Context, key, value string) error
	// Changes the key if it exists.
	putIfExists(ctx context.Context, key, value string) error
	grant(ctx context.Context, ttl time.Duration, tag string) (string, error)
	// Ends a lease.
	revoke(ctx context.Context, id string) error
	// Renews leases, and returns an error if one of them is gone.
	renew(ctx context.Context, ids []string) error
	// Calls `ready` once it knows the present state, then `seen` with each value of a changed key, until ctx ends.
	watch(ctx context.Context, prefix string, ready func(), seen func(value string)) error
	// Takes the lock, waiting as long as it takes, and returns what releases it.
	lock(ctx context.Context, name string) (func(context.Context) error, error)
}

func main() {
	if len(os.Args) < 6 {
		log.Fatal("usage: see main.go")
	}
	command, store, numbers, ports := os.Args[1], os.Args[2], os.Args[3:len(os.Args)-1], os.Args[len(os.Args)-1]
	given := make([]int, len(numbers))
	for index, text := range numbers {
		found, err := strconv.Atoi(text)
		if err != nil || found < 1 {
			log.Fatalf("%q is not a positive number", text)
		}
		given[index] = found
	}
	nodes := strings.Split(ports, ",")
	connect := connectTidelock
	if store == "etcd" {
		connect = connectEtcd
	} else if store != "tidelock" {
		log.Fatalf("%q is neither tidelock nor etcd", store)
	}
	switch {
	case command == "watch" && len(given) == 3:
		watch(connect, nodes, given[0], given[1], seconds(given[2]))
	case command == "lease" && len(given) == 2:
		grant(connect, nodes, given[0], seconds(given[1]))
	case command == "txn" && len(given) == 2:
		prepare(connect(nodes[0]))
		value := strings.Repeat("y", valueBytes)
		closedLoop(connect, nodes, given[0], seconds(given[1]), func(ctx context.Context, open client) error {
			return open.putIfExists(ctx, key(rand.Intn(keys)), value)
		})
	case command == "lock" && len(given) == 2:
		handOver(connect, nodes, given[0], seconds(given[1]))
	case command == "renew" && len(given) == 2:
		renew(connect, nodes, given[0], seconds(given[1]))
	case command == "hear" && len(given) == 2:
		hear(connect, nodes, given[0], given[1])
	case command == "observe" && len(given) == 2:
		observe(connect, nodes, given[0], seconds(given[1]))
	default:
		log.Fatal("usage: see main.go")
	}
}

func seconds(count int) time.Duration {
	return time.Duration(count) * time.Second
}

func key(index int) string {
	return fmt.Sprintf("bench:%010d", index)
}

func prepare(open client) {
	value := strings.Repeat("x", valueBytes)
	parallel(128, func(first int) {
		for index := first; index < keys; index += 128 {
			must(open.put(context.Background(), key(index), value))
		}
	})
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Runs `work` with the numbers below `count` and waits for all.
func parallel(count int, work func(int)) {
	var group sync.WaitGroup
	for index := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			work(index)
		}()
	}
	group.Wait()
}

// What goroutines measured.
type record struct {
	mutex     sync.Mutex
	latencies []time.Duration
	errors    map[string]int
}

func (all *record) add(latencies []time.Duration, errors map[string]int) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	all.latencies = append(all.latencies, latencies...)
	if all.errors == nil {
		all.errors = map[string]int{}
	}
	for reason, count := range errors {
		all.errors[reason] += count
	}
}

// Prints the result, named as in `tidelock bench --json`.
func (all *record) report(elapsed time.Duration, more map[string]any) {
	failed := 0
	for _, count := range all.errors {
		failed += count
	}
	if len(all.latencies) == 0 {
		log.Fatalf("nothing succeeded: %v", all.errors)
	}
	sort.Slice(all.latencies, func(a, b int) bool { return all.latencies[a] < all.latencies[b] })
	at := func(share float64) float64 {
		return float64(all.latencies[int(share*float64(len(all.latencies)-1))].Nanoseconds()) / 1e3
	}
	found := map[string]any{
		"ok":                  len(all.latencies),
		"errors":              failed,
		"error_counts":        all.errors,
		"seconds":             elapsed.Seconds(),
		"requests_per_second": float64(len(all.latencies)) / elapsed.Seconds(),
		"latency_us": map[string]any{
			"percentiles": map[string]float64{"50": at(0.5), "99": at(0.99), "99.9": at(0.999), "100": at(1)},
		},
	}
	for name, value := range more {
		found[name] = value
	}
	must(json.NewEncoder(os.Stdout).Encode(found))
}

func closedLoop(connect func(string) client, nodes []string, clients int, length time.Duration, work func(context.Context, client) error) {
	begin := time.Now().Add(warmUp)
	end := begin.Add(length)
	var all record
	parallel(clients, func(index int) {
		open := connect(nodes[index%len(nodes)])
		var latencies []time.Duration
		errors := map[string]int{}
		for {
			sent := time.Now()
			if sent.After(end) {
				break
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			err := work(ctx, open)
			cancel()
			switch {
			case sent.Before(begin):
			case err != nil:
				errors[err.Error()]++
			default:
				latencies = append(latencies, time.Since(sent))
			}
		}
		all.add(latencies, errors)
	})
	all.report(time.Since(begin), nil)
}

// Grants leases, and ends them after the measurement, so that the next one begins without them.
func grant(connect func(string) client, nodes []string, clients int, length time.Duration) {
	var mutex sync.Mutex
	var granted []string
	closedLoop(connect, nodes, clients, length, func(ctx context.Context, open client) error {
		id, err := open.grant(ctx, leaseTTL, "")
		if err == nil {
			mutex.Lock()
			granted = append(granted, id)
			mutex.Unlock()
		}
		return err
	})
	parallel(clients, func(first int) {
		open := connect(nodes[first%len(nodes)])
		for index := first; index < len(granted); index += clients {
			must(open.revoke(context.Background(), granted[index]))
		}
	})
}

const watchedPrefix = "watched:"

// Watchers that measure how old each value is when they see it.
type audience struct {
	all      record
	done     sync.WaitGroup
	received atomic.Int64
}

// Begins to watch, and returns once all watchers know the present state.
func (a *audience) watch(ctx context.Context, connect func(string) client, nodes []string, watchers int) {
	var ready sync.WaitGroup
	for _, node := range nodes {
		shared := connect(node)
		for range watchers {
			ready.Add(1)
			a.done.Add(1)
			go func() {
				defer a.done.Done()
				var latencies []time.Duration
				err := shared.watch(ctx, watchedPrefix, ready.Done, func(value string) {
					sent, err := strconv.ParseInt(value, 10, 64)
					if err != nil {
						return
					}
					latencies = append(latencies, time.Duration(time.Now().UnixNano()-sent))
					a.received.Add(1)
				})
				if ctx.Err() == nil {
					log.Fatal(err)
				}
				a.all.add(latencies, nil)
			}()
		}
	}
	ready.Wait()
}

// Reports what the watchers saw, once they have seen so many values or the time is over.
func (a *audience) report(stop func(), elapsed, within time.Duration, wanted int64, more map[string]any) {
	for deadline := time.Now().Add(within); a.received.Load() < wanted && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	a.done.Wait()
	more["missed"] = wanted - a.received.Load()
	a.all.report(elapsed, more)
}

// The watchers of a load that another process makes.
func hear(connect func(string) client, nodes []string, watchers, puts int) {
	ctx, stop := context.WithCancel(context.Background())
	var listening audience
	listening.watch(ctx, connect, nodes, watchers)
	fmt.Println("ready")
	start := time.Now()
	listening.report(stop, time.Since(start), 10*timeout, int64(puts*watchers*len(nodes)), map[string]any{})
}

func watch(connect func(string) client, nodes []string, watchers, rate int, length time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	var listening audience
	listening.watch(ctx, connect, nodes, watchers)
	writer := connect(nodes[0])
	count := int(length.Seconds() * float64(rate))
	start := time.Now()
	for index := range count {
		time.Sleep(time.Until(start.Add(time.Duration(index) * time.Second / time.Duration(rate))))
		value := strconv.FormatInt(time.Now().UnixNano(), 10)
		must(writer.put(context.Background(), fmt.Sprintf("%s%d", watchedPrefix, index), value))
	}
	elapsed := time.Since(start)
	// Every key is put once, so each watcher sees every put.
	listening.report(stop, elapsed, timeout, int64(count*watchers*len(nodes)), map[string]any{"puts": count})
}

func observe(connect func(string) client, nodes []string, watchers int, length time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ready sync.WaitGroup
	for _, node := range nodes {
		shared := connect(node)
		for range watchers {
			ready.Add(1)
			go func() {
				err := shared.watch(ctx, watchedPrefix, ready.Done, func(string) {})
				if ctx.Err() == nil {
					log.Fatal(err)
				}
			}()
		}
	}
	ready.Wait()
	fmt.Println("ready")
	time.Sleep(length)
}

func handOver(connect func(string) client, nodes []string, clients int, length time.Duration) {
	begin := time.Now().Add(warmUp)
	end := begin.Add(length)
	var released atomic.Int64
	var all record
	parallel(clients, func(index int) {
		open := connect(nodes[index%len(nodes)])
		var latencies []time.Duration
		errors := map[string]int{}
		for time.Now().Before(end) {
			release, err := open.lock(context.Background(), "bench-lock")
			now := time.Now()
			if err != nil {
				errors[err.Error()]++
				continue
			}
			if before := released.Load(); before != 0 && now.After(begin) {
				latencies = append(latencies, now.Sub(time.Unix(0, before)))
			}
			released.Store(time.Now().UnixNano())
			if err := release(context.Background()); err != nil {
				errors[err.Error()]++
			}
		}
		all.add(latencies, errors)
	})
	all.report(time.Since(begin), nil)
}

func renew(connect func(string) client, nodes []string, leases int, length time.Duration) {
	groups := (leases + renewGroup - 1) / renewGroup
	end := time.Now().Add(length)
	var all record
	var granted atomic.Int64
	parallel(groups, func(index int) {
		open := connect(nodes[index%len(nodes)])
		var ids []string
		for range min(renewGroup, leases-index*renewGroup) {
			id, err := open.grant(context.Background(), renewTTL, fmt.Sprintf("g%d", index))
			must(err)
			ids = append(ids, id)
		}
		if granted.Add(int64(len(ids))) == int64(leases) {
			fmt.Println("ready")
		}
		var latencies []time.Duration
		errors := map[string]int{}
		// Spread over the interval, as clients that begin at any time are.
		next := time.Now().Add(time.Duration(rand.Int63n(int64(renewTTL / 3))))
		for next.Before(end) {
			time.Sleep(time.Until(next))
			next = next.Add(renewTTL / 3)
			sent := time.Now()
			// A client whose node is gone goes to another one.
			for turn := range nodes {
				err := open.renew(context.Background(), ids)
				if err == nil {
					latencies = append(latencies, time.Since(sent))
					break
				}
				errors[err.Error()]++
				open = connect(nodes[(index+turn+1)%len(nodes)])
			}
		}
		all.add(latencies, errors)
	})
	all.report(length, nil)
}
