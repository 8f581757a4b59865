// An etcd server, and a load for it, from etcd's own modules, with which bench/compare compares Tidelock.
//
//	etcd serve NAME DIR CLIENT_PORT PEER_PORT NAME=PEER_PORT,...   one member, until SIGTERM
//	etcd load put|range CONNECTIONS CLIENTS SECONDS PORT,...       closed loop; prints one JSON object
//
// The server has etcd's defaults except its addresses, its log level and its quota. The load is that of etcd's own
// `benchmark` tool: CLIENTS goroutines over CONNECTIONS gRPC connections, each waiting for its answer; keys of 16 bytes,
// values of 32, over 10,000 keys, as `tidelock bench resp` does. `range` is linearizable.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"net/url"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

const (
	keys       = 10_000
	valueBytes = 32
	warmUp     = time.Second
	timeout    = 10 * time.Second
)

func main() {
	switch {
	case len(os.Args) == 7 && os.Args[1] == "serve":
		serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case len(os.Args) == 7 && os.Args[1] == "load":
		load(os.Args[2], number(os.Args[3]), number(os.Args[4]), number(os.Args[5]), os.Args[6])
	default:
		log.Fatal("usage: see main.go")
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil || found < 1 {
		log.Fatalf("%q is not a positive number", text)
	}
	return found
}

func local(port string) url.URL {
	return url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
}

func serve(name, dir, clientPort, peerPort, cluster string) {
	config := embed.NewConfig()
	config.Name = name
	config.Dir = dir
	config.LogLevel = "error"
	config.QuotaBackendBytes = 8 << 30
	client, peer := local(clientPort), local(peerPort)
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	var members []string
	for _, member := range strings.Split(cluster, ",") {
		memberName, port, found := strings.Cut(member, "=")
		if !found {
			log.Fatalf("%q is not NAME=PORT", member)
		}
		address := local(port)
		members = append(members, memberName+"="+address.String())
	}
	config.InitialCluster = strings.Join(members, ",")
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		etcd.Close()
	case err := <-etcd.Err():
		log.Fatal(err)
	}
}

// The results of one goroutine.
type seen struct {
	latencies []time.Duration
	errors    map[string]int
}

func load(operation string, connections, clients, seconds int, ports string) {
	var endpoints []string
	for _, port := range strings.Split(ports, ",") {
		address := local(port)
		endpoints = append(endpoints, address.String())
	}
	var open []*clientv3.Client
	for index := range connections {
		client, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{endpoints[index%len(endpoints)]},
			DialTimeout: timeout,
		})
		if err != nil {
			log.Fatal(err)
		}
		open = append(open, client)
	}
	value := strings.Repeat("x", valueBytes)
	if operation == "range" {
		prepare(open[0], value)
	}
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(seconds) * time.Second)
	all := make([]seen, clients)
	var group sync.WaitGroup
	for index := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			all[index] = work(open[index%connections], operation, value, begin, end)
		}()
	}
	group.Wait()
	report(all, time.Since(begin))
}

func key(index int) string {
	return fmt.Sprintf("bench:%010d", index)
}

func prepare(client *clientv3.Client, value string) {
	var group sync.WaitGroup
	for first := range 256 {
		group.Add(1)
		go func() {
			defer group.Done()
			for index := first; index < keys; index += 256 {
				if _, err := client.Put(context.Background(), key(index), value); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	group.Wait()
}

func work(client *clientv3.Client, operation, value string, begin, end time.Time) seen {
	found := seen{errors: map[string]int{}}
	for {
		sent := time.Now()
		if sent.After(end) {
			return found
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		var err error
		switch operation {
		case "put":
			_, err = client.Put(ctx, key(rand.Intn(keys)), value)
		case "range":
			var answer *clientv3.GetResponse
			answer, err = client.Get(ctx, key(rand.Intn(keys)))
			if err == nil && (len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != value) {
				err = fmt.Errorf("a wrong value")
			}
		default:
			log.Fatalf("%q is neither put nor range", operation)
		}
		cancel()
		switch {
		case sent.Before(begin):
		case err != nil:
			found.errors[err.Error()]++
		default:
			found.latencies = append(found.latencies, time.Since(sent))
		}
	}
}

func report(all []seen, elapsed time.Duration) {
	var latencies []time.Duration
	errors, failed := map[string]int{}, 0
	for _, one := range all {
		latencies = append(latencies, one.latencies...)
		for reason, count := range one.errors {
			errors[reason] += count
			failed += count
		}
	}
	if len(latencies) == 0 {
		log.Fatalf("no request succeeded: %v", errors)
	}
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	at := func(share float64) float64 {
		return float64(latencies[int(share*float64(len(latencies)-1))].Nanoseconds()) / 1e3
	}
	// Named as in `tidelock bench --json`.
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"ok":                  len(latencies),
		"errors":              failed,
		"error_counts":        errors,
		"wrong":               0,
		"seconds":             elapsed.Seconds(),
		"requests_per_second": float64(len(latencies)) / elapsed.Seconds(),
		"latency_us": map[string]any{
			"percentiles": map[string]float64{"50": at(0.5), "99": at(0.99), "99.9": at(0.999)},
		},
	})
}
