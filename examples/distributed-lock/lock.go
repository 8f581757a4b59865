// Counts under a lock: several processes add to one counter, and no addition is lost.
//
// usage: lock NODE,NODE,… LOCK ROUNDS [SECONDS]
//
// In each round the process acquires the lock, reads the counter, works for SECONDS, and writes the counter with the
// fence of the lock. If it was paused for longer than its lease lives, another process has the lock by then. The fenced
// write is refused, and the round begins again.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	ttl    = 3 * time.Second
	answer = 30 * time.Second
	// Renewals give up on a node that hangs in time to ask the others.
	renewal = ttl / 4
)

// cluster asks any node, and another one if that gives no answer. Every request here may be repeated.
type cluster struct {
	nodes  []string
	answer time.Duration
}

func newCluster(nodes string, answer time.Duration) *cluster {
	return &cluster{strings.Split(nodes, ","), answer}
}

func (c *cluster) ask(method, path, body string, headers ...string) (int, []byte) {
	client := http.Client{Timeout: c.answer}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); c.next() {
		request, err := http.NewRequest(method, "http://"+c.nodes[0]+path, strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := client.Do(request)
		if err != nil {
			continue
		}
		content, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil && response.StatusCode != 503 && response.StatusCode != 504 {
			return response.StatusCode, content
		}
	}
	log.Fatalf("no node answered %s %s", method, path)
	return 0, nil
}

func (c *cluster) next() {
	c.nodes = append(c.nodes[1:], c.nodes[0])
	time.Sleep(200 * time.Millisecond)
}

func decode(content []byte, into any) {
	if err := json.Unmarshal(content, into); err != nil {
		log.Fatalf("%s: %v", content, err)
	}
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// lease is renewed until it ends.
type lease struct {
	id       string
	hasEnded atomic.Bool
}

func grant(nodes, tag string) *lease {
	status, content := newCluster(nodes, answer).ask("POST", "/v1/leases", encode(map[string]any{"ttl": "3s", "tag": tag}))
	if status != 201 {
		log.Fatalf("%s", content)
	}
	var granted struct{ ID string }
	decode(content, &granted)
	granting := &lease{id: granted.ID}
	go granting.renew(newCluster(nodes, renewal))
	return granting
}

func (l *lease) renew(cluster *cluster) {
	for !l.hasEnded.Load() {
		time.Sleep(ttl / 3)
		_, content := cluster.ask("POST", "/v1/leases/renew", encode(map[string]any{"ids": []string{l.id}}))
		var renewed struct{ Leases []struct{ Problem string } }
		decode(content, &renewed)
		if renewed.Leases[0].Problem != "" {
			l.hasEnded.Store(true)
		}
	}
}

// oneRound adds 1 to the counter, and returns whether that was done.
func oneRound(cluster *cluster, lease *lease, lock string, work time.Duration) bool {
	wanted := map[string]any{"lease": lease.id, "wait": "10s", "value": fmt.Sprintf("go %d", os.Getpid())}
	status, content := cluster.ask("POST", "/v1/locks/"+lock+"/acquire", encode(wanted))
	if status == 404 {
		lease.hasEnded.Store(true)
	}
	if status != 200 {
		return false
	}
	var held struct{ Fence uint64 }
	decode(content, &held)
	fmt.Printf("holding, fence %d\n", held.Fence)

	counter, count := "/v1/keys/"+url.PathEscape("{"+lock+"}count"), 0
	if status, content = cluster.ask("GET", counter, ""); status == 200 {
		decode(content, &count)
	}
	time.Sleep(work)
	// The write may be repeated after an answer that was lost, because nobody else can write meanwhile.
	fence := fmt.Sprintf("%s=%d", lock, held.Fence)
	if status, _ = cluster.ask("PUT", counter, strconv.Itoa(count+1), "If-Fence", fence); status == 412 {
		fmt.Printf("refused, fence %d\n", held.Fence)
		return false
	}
	cluster.ask("POST", "/v1/locks/"+lock+"/release", encode(map[string]any{"lease": lease.id}))
	return true
}

func main() {
	nodes, lock := os.Args[1], os.Args[2]
	rounds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	work := time.Duration(0)
	if len(os.Args) > 4 {
		seconds, err := strconv.ParseFloat(os.Args[4], 64)
		if err != nil {
			log.Fatal(err)
		}
		work = time.Duration(seconds * float64(time.Second))
	}
	cluster, lease := newCluster(nodes, answer), grant(nodes, lock)
	for done := 0; done < rounds; {
		if lease.hasEnded.Load() {
			lease = grant(nodes, lock)
		}
		if oneRound(cluster, lease, lock, work) {
			done++
		}
	}
	fmt.Println("done")
}
