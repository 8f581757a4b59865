// Keeps the configuration of a namespace in memory and up to date, and the last good copy in a file.
//
// usage: config NODE,NODE,… NAMESPACE FILE
//
// A program reads `now`, the documents by container. It starts with the copy in FILE if no node answers. Prints
// `copy` or `current` with the documents, and again whenever they change.
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
	"strings"
	"sync/atomic"
	"time"
)

const answer = 60 * time.Second

// cluster follows events of any node, and of another one when that ends.
type cluster struct {
	nodes []string
	// What was said last to be wrong with a node.
	problems map[string]string
}

// event is what a node sends.
type event struct {
	Key  string
	Data json.RawMessage
}

// events passes on server-sent events, from another node behind the last event whenever the connection ends.
func (c *cluster) events(path string, use func(name string, data event)) {
	for last := ""; ; time.Sleep(200 * time.Millisecond) {
		c.report(c.follow(path, &last, use))
		c.nodes = append(c.nodes[1:], c.nodes[0])
	}
}

// report says what is wrong with a node, once until that changes.
func (c *cluster) report(err error) {
	problem := fmt.Sprint(err)
	if err != nil && c.problems[c.nodes[0]] != problem {
		log.Printf("%s: %s", c.nodes[0], problem)
	}
	c.problems[c.nodes[0]] = problem
}

// follow passes on the events of one connection. A node sends one every ten seconds at least.
func (c *cluster) follow(path string, last *string, use func(name string, data event)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	silence := time.AfterFunc(answer, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+c.nodes[0]+path, nil)
	if err != nil {
		log.Fatal(err)
	}
	if *last != "" {
		request.Header.Set("Last-Event-ID", *last)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("%s %s", response.Status, body)
	}
	lines, fields := bufio.NewScanner(response.Body), map[string]string{}
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		silence.Reset(answer)
		if name, value, _ := strings.Cut(lines.Text(), ": "); name != "" {
			fields[name] = value
			continue
		}
		if id, ok := fields["id"]; ok {
			*last = id
		}
		var data event
		if fields["event"] != "" && json.Unmarshal([]byte(fields["data"]), &data) == nil {
			use(fields["event"], data)
		}
		fields = map[string]string{}
	}
	return lines.Err()
}

type documents map[string]json.RawMessage

// configuration is what a namespace holds. Any goroutine may read `now`, which is replaced as a whole.
type configuration struct {
	path string
	now  atomic.Pointer[documents]
}

func (c *configuration) follow(nodes, namespace string) {
	known, isCurrent := documents{}, false
	path := "/api/namespaces/" + url.PathEscape(namespace) + "/watch"
	(&cluster{strings.Split(nodes, ","), map[string]string{}}).events(path, func(name string, data event) {
		switch {
		case name == "gap":
			// The state follows. What was known until now serves until it is complete.
			known, isCurrent = documents{}, false
		case name == "change":
			known[data.Key] = data.Data
		case name == "deleted" && data.Key != "":
			delete(known, data.Key)
		case name == "deleted":
			known = documents{}
		case name == "current":
			isCurrent = true
		}
		if isCurrent {
			c.replace("current", maps.Clone(known))
		}
	})
}

func (c *configuration) replace(source string, known documents) {
	text, err := json.Marshal(known)
	if err == nil && source == "current" {
		err = c.save(text)
	}
	if err != nil {
		log.Fatal(err)
	}
	c.now.Store(&known)
	fmt.Println(source, string(text))
}

// save replaces the copy at once, so that it is never a part of one.
func (c *configuration) save(text []byte) error {
	file, err := os.Create(c.path + ".new")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(c.path+".new", c.path)
}

func main() {
	config := &configuration{path: os.Args[3]}
	if text, err := os.ReadFile(config.path); err == nil {
		var copied documents
		if json.Unmarshal(text, &copied) == nil {
			config.replace("copy", copied)
		}
	}
	config.follow(os.Args[1], os.Args[2])
}
