// Lets one of several processes lead, and shows all of them who leads.
//
// usage: election NODE,NODE,… ELECTION CANDIDATE
//
// An election is a lock whose value is the name of the candidate that holds it. While the process leads, it writes its
// name to a key with the fence of the lock, so that one that was paused and does not know that it was replaced changes
// nothing. Prints `leader NAME` when it learns who leads, `elected FENCE` when it is elected, and `deposed` when it may
// not act as the leader any more.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	ttl    = 3 * time.Second
	answer = 60 * time.Second
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

// observe prints who leads, whenever that changes.
func observe(nodes, election string) {
	shown := uint64(0)
	newCluster(nodes, answer).events("/v1/watch?key="+url.QueryEscape(election), func(name string, data change) {
		if name == "put" && data.Ver != shown {
			shown = data.Ver
			fmt.Printf("leader %s\n", data.Val)
		}
	})
}

// term is the time for which a candidate may lead, if it is elected. It is over when its lease ends, by the clock of
// this machine counted from before the request, so before it ends for the store.
type term struct {
	lease  string
	mutex  sync.Mutex
	until  time.Time
	isOver bool
}

func (t *term) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.isOver = true
}

func (t *term) hasEnded() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.isOver || time.Now().After(t.until)
}

// renew extends the term until it is over.
func (t *term) renew(cluster *cluster) {
	for !t.hasEnded() {
		time.Sleep(ttl / 3)
		asked := time.Now()
		_, content := cluster.ask("POST", "/v1/leases/renew", encode(map[string]any{"ids": []string{t.lease}}))
		var renewed struct {
			Leases []struct {
				Problem string
				Valid   int64 `json:"valid_for_ms"`
			}
		}
		decode(content, &renewed)
		t.mutex.Lock()
		t.isOver = t.isOver || renewed.Leases[0].Problem != ""
		t.until = asked.Add(time.Duration(renewed.Leases[0].Valid) * time.Millisecond)
		t.mutex.Unlock()
	}
}

// campaign leads once: from the election to the end of the term.
func campaign(nodes, election, candidate string) {
	cluster, asked := newCluster(nodes, answer), time.Now()
	_, content := cluster.ask("POST", "/v1/leases", encode(map[string]any{"ttl": "3s", "tag": election}))
	var granted struct{ ID string }
	decode(content, &granted)
	term := &term{lease: granted.ID, until: asked.Add(ttl)}
	go term.renew(newCluster(nodes, renewal))
	defer term.end()

	wanted := encode(map[string]any{"lease": term.lease, "wait": "20s", "value": candidate})
	status, content := cluster.ask("POST", "/v1/locks/"+election+"/acquire", wanted)
	for status == 409 {
		status, content = cluster.ask("POST", "/v1/locks/"+election+"/acquire", wanted)
	}
	if status != 200 {
		return
	}
	var held struct{ Fence uint64 }
	decode(content, &held)
	fmt.Printf("elected %d\n", held.Fence)
	// The process must stop before its lease ends, even if it hears from no node.
	for !term.hasEnded() {
		lead(cluster, election, candidate, held.Fence, term)
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Println("deposed")
}

// lead is the work that only the leader may do.
func lead(cluster *cluster, election, candidate string, fence uint64, term *term) {
	key := url.PathEscape("{" + election + "}done-by")
	status, _ := cluster.ask("PUT", "/v1/keys/"+key, candidate, "If-Fence", fmt.Sprintf("%s=%d", election, fence))
	if status == 412 {
		fmt.Printf("refused %d\n", fence)
		term.end()
	}
}

func main() {
	nodes, election, candidate := os.Args[1], os.Args[2], os.Args[3]
	go observe(nodes, election)
	for {
		campaign(nodes, election, candidate)
	}
}
