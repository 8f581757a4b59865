// Moves units from one account to another, each exactly once, whatever happens to answers.
//
// usage: transfer NODE,NODE,… BANK UNITS
//
// A transfer is a transaction with an id. If its answer is lost, the program sends it again with the same id: the store
// does it once, and answers every repetition with the first outcome.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const answer = 30 * time.Second

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

// account is the result of reading a key.
type account struct {
	Key string `json:"key"`
	Ver uint64 `json:"ver"`
	Val string `json:"val"`
}

func (a account) holds() int {
	units, _ := strconv.Atoi(a.Val)
	return units
}

// outcome is the answer to a transaction.
type outcome struct {
	Succeeded bool
	Results   []struct{ Get account }
}

func transact(cluster *cluster, transaction map[string]any) (answered outcome) {
	status, content := cluster.ask("POST", "/v1/transactions", encode(transaction))
	if status != 200 {
		log.Fatalf("%s", content)
	}
	decode(content, &answered)
	return answered
}

// transfer moves one unit. It returns false if another process changed an account since it was read.
func transfer(cluster *cluster, giverKey, takerKey string) bool {
	type object = map[string]any
	get := func(key string) object { return object{"get": object{"key": key}} }
	found := transact(cluster, object{"then": []object{get(giverKey), get(takerKey)}})
	giver, taker := found.Results[0].Get, found.Results[1].Get
	put := func(key string, units int) object {
		return object{"put": object{"key": key, "val": strconv.Itoa(units)}}
	}
	done := transact(cluster, object{
		// Without the id, a repetition after a lost answer could not tell its own change from that of another process.
		"id":   rand.Text(),
		"if":   []object{{"key": giverKey, "ver": giver.Ver}, {"key": takerKey, "ver": taker.Ver}},
		"then": []object{put(giverKey, giver.holds()-1), put(takerKey, taker.holds()+1)},
	})
	return done.Succeeded
}

func main() {
	nodes, bank := os.Args[1], os.Args[2]
	units, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	cluster := newCluster(nodes)
	// The common tag puts both accounts into one slot.
	giver, taker := "{"+bank+"}a", "{"+bank+"}b"
	for moved := 0; moved < units; {
		if transfer(cluster, giver, taker) {
			moved++
		}
	}
	fmt.Println("done")
}
