// Keeps feature flags in memory and up to date, without asking for them.
//
// usage: flags NODE,NODE,… PREFIX
//
// A flag is a key that begins with PREFIX; its value is on or off. A program reads `now` wherever it decides by a flag.
// Prints each flag as it changes, and `ready` when it knows all of them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const answer = 60 * time.Second

// cluster follows events of any node, and of another one when that ends.
type cluster struct {
	nodes []string
}

func newCluster(nodes string) *cluster {
	return &cluster{strings.Split(nodes, ",")}
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
	silence := time.AfterFunc(answer, cancel)
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
		silence.Reset(answer)
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

// flags are the flags of a prefix. Any goroutine may read `now`, which is replaced as a whole.
type flags struct {
	now atomic.Pointer[map[string]string]
}

func (f *flags) follow(nodes, prefix string) {
	known, isLive := map[string]string{}, false
	f.now.Store(&map[string]string{})
	newCluster(nodes).events("/v1/watch?prefix="+url.QueryEscape(prefix), func(name string, data change) {
		switch name {
		case "reset":
			// The state follows. What was known until now serves until it is complete.
			known, isLive = map[string]string{}, false
		case "put":
			known[data.Key] = data.Val
		case "delete":
			delete(known, data.Key)
		case "live":
			isLive = true
			fmt.Println("ready")
		}
		if isLive && name != "progress" {
			f.replace(maps.Clone(known))
		}
	})
}

func (f *flags) replace(flags map[string]string) {
	all := maps.Clone(flags)
	maps.Copy(all, *f.now.Load())
	for _, flag := range slices.Sorted(maps.Keys(all)) {
		before, was := (*f.now.Load())[flag]
		after, is := flags[flag]
		if was && !is {
			after = "deleted"
		}
		if was != is || before != after {
			fmt.Println(flag, after)
		}
	}
	f.now.Store(&flags)
}

func main() {
	new(flags).follow(os.Args[1], os.Args[2])
}
