// Registers an instance of a service for as long as the process runs, or shows all instances as they come and go.
//
// usage: registry NODE,NODE,… register SERVICE INSTANCE ADDRESS
//
//	registry NODE,NODE,… discover SERVICE
//
// An instance is a key that is bound to a lease, so it is gone a few seconds after its process ends, in whatever way.
// `discover` prints the instances in one line whenever they change.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	ttl = 3 * time.Second
	// A node that hangs is given up in time to ask the others.
	answer = ttl / 4
	// Between two events: a node sends one every ten seconds at least.
	quiet = 60 * time.Second
)

// cluster asks any node, and another one if that gives no answer. Every request here may be repeated.
type cluster struct {
	nodes []string
}

func newCluster(nodes string) *cluster {
	return &cluster{strings.Split(nodes, ",")}
}

func (c *cluster) ask(method, path, body string, headers ...string) (int, []byte) {
	client := http.Client{Timeout: answer}
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

// change is the data of an event.
type change struct {
	Key string
	Val string
	Ver uint64
}

// events passes on server-sent events, from another node with the last cursor whenever the connection ends.
func (c *cluster) events(path string, use func(name string, data change)) {
	for cursor := ""; ; c.next() {
		c.follow(path, &cursor, use)
	}
}

// follow passes on the events of one connection. A node sends one every ten seconds at least.
func (c *cluster) follow(path string, cursor *string, use func(name string, data change)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	silence := time.AfterFunc(quiet, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+c.nodes[0]+path, nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", *cursor)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	lines, event := bufio.NewScanner(response.Body), map[string]string{}
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		silence.Reset(quiet)
		if name, value, _ := strings.Cut(lines.Text(), ": "); name != "" {
			event[name] = value
			continue
		}
		if id, ok := event["id"]; ok {
			*cursor = id
		}
		var data change
		if event["event"] != "" && json.Unmarshal([]byte(event["data"]), &data) == nil {
			use(event["event"], data)
		}
		event = map[string]string{}
	}
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

// instances is the beginning of the keys of a service. The braces make the service the tag of its keys and leases.
func instances(service string) string {
	return "{" + service + "}/"
}

func register(nodes, service, instance, address string) {
	cluster := newCluster(nodes)
	for {
		_, content := cluster.ask("POST", "/v1/leases", encode(map[string]any{"ttl": "3s", "tag": service}))
		var granted struct{ ID string }
		decode(content, &granted)
		key := url.PathEscape(instances(service) + instance)
		status, _ := cluster.ask("PUT", "/v1/keys/"+key+"?lease="+url.QueryEscape(granted.ID), address)
		if status == 200 || status == 201 {
			fmt.Println("registered")
		}
		// A process that was paused for too long registers again.
		for isAlive(cluster, granted.ID) {
			time.Sleep(ttl / 3)
		}
	}
}

// isAlive renews a lease, and returns false if it has ended.
func isAlive(cluster *cluster, lease string) bool {
	_, content := cluster.ask("POST", "/v1/leases/renew", encode(map[string]any{"ids": []string{lease}}))
	var renewed struct{ Leases []struct{ Problem string } }
	decode(content, &renewed)
	return renewed.Leases[0].Problem == ""
}

func discover(nodes, service string) {
	known, isKnown := map[string]string{}, false
	path := "/v1/watch?prefix=" + url.QueryEscape(instances(service))
	newCluster(nodes).events(path, func(name string, data change) {
		switch name {
		case "reset":
			known, isKnown = map[string]string{}, false
		case "put":
			known[data.Key] = data.Val
		case "delete":
			delete(known, data.Key)
		case "live":
			isKnown = true
		}
		if isKnown && name != "progress" {
			shown := []string{"instances:"}
			for _, key := range slices.Sorted(maps.Keys(known)) {
				shown = append(shown, strings.TrimPrefix(key, instances(service))+"="+known[key])
			}
			fmt.Println(strings.Join(shown, " "))
		}
	})
}

func main() {
	if nodes, rest := os.Args[1], os.Args[3:]; os.Args[2] == "register" {
		register(nodes, rest[0], rest[1], rest[2])
	} else {
		discover(nodes, rest[0])
	}
}
