package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The keys of the load are bounded, so that the nodes hold the same amount of data all the time.
const (
	soakKeys       = 2000
	soakBanks      = 50
	soakNamespaces = 20
	soakValueBytes = 4 << 10
	// Long, so that the latest changes, of which each shard keeps 16 MiB for watchers, are full in the
	// first quarter of an hour. Until then the memory of nodes grows.
	soakKeyBytes = 200
)

// soakKind is one kind of client. Each step is timed.
type soakKind struct {
	name    string
	clients int
	pauseMs int // between two steps, on average
	step    func(l *soakLoad, ctx context.Context, w *worker) outcome
}

var soakKinds = []soakKind{
	{"HTTP read", 3, 10, (*soakLoad).read},
	{"HTTP write", 3, 10, (*soakLoad).write},
	{"Redis read", 2, 10, (*soakLoad).redisRead},
	{"Redis write", 2, 10, (*soakLoad).redisWrite},
	{"transaction", 2, 20, (*soakLoad).transact},
	{"publish", 1, 200, (*soakLoad).publish},
	{"list", 1, 100, (*soakLoad).list},
	{"lock", 1, 100, (*soakLoad).lock},
	{"watch", 2, 50, (*soakLoad).watch},
}

// soakLoad is what the clients have seen.
type soakLoad struct {
	mutex     sync.Mutex
	floors    map[string]uint64 // the highest version of each key that any client has seen
	problems  []string
	checked   int               // versions
	latencies [][]time.Duration // of steps that were done, by kind, since they were last taken
	failures  []int             // of the same time: refused, or of unknown outcome
}

func newSoakLoad() *soakLoad {
	return &soakLoad{floors: map[string]uint64{}, latencies: make([][]time.Duration, len(soakKinds)),
		failures: make([]int, len(soakKinds))}
}

func (l *soakLoad) note(kind int, took time.Duration, outcome outcome) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if outcome == done {
		l.latencies[kind] = append(l.latencies[kind], took)
	} else {
		l.failures[kind]++
	}
}

// take is what was noted of each kind since the last call.
func (l *soakLoad) take() ([][]time.Duration, []int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	latencies, failures := l.latencies, l.failures
	l.latencies, l.failures = make([][]time.Duration, len(soakKinds)), make([]int, len(soakKinds))
	return latencies, failures
}

func (l *soakLoad) count() int { return l.checked }

func (l *soakLoad) check() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.problems) > 0 {
		return fmt.Errorf("%d problems: %s", len(l.problems), l.problems[0])
	}
	return nil
}

// floor is the highest version of a key that was seen by now. A later linearizable answer has at
// least this one.
func (l *soakLoad) floor(key string) uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.floors[key]
}

// saw checks a version that an answer has. `floor` was taken before the request.
func (l *soakLoad) saw(key string, floor, version uint64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.checked++
	if version < floor {
		l.problems = append(l.problems, fmt.Sprintf("%s: version %d was answered after %d", key, version, floor))
	}
	l.floors[key] = max(l.floors[key], version)
}

func soakKey(w *worker) string {
	return fmt.Sprintf("soak/%0*d", soakKeyBytes-len("soak/"), w.random.IntN(soakKeys))
}

func soakValue() string {
	return fmt.Sprintf("%016x", unique()) + strings.Repeat("v", soakValueBytes-16)
}

func (l *soakLoad) request(w *worker, method, body string) outcome {
	key := soakKey(w)
	floor := l.floor(key)
	answer := w.any().ask(method, "/v1/keys/"+key, body)
	if answer.status == 404 {
		l.saw(key, floor, 0)
		return done
	}
	if version, err := strconv.ParseUint(strings.Trim(answer.version, `"`), 10, 64); answer.outcome == done && err == nil {
		l.saw(key, floor, version)
	}
	return answer.outcome
}

func (l *soakLoad) read(_ context.Context, w *worker) outcome { return l.request(w, "GET", "") }

func (l *soakLoad) write(_ context.Context, w *worker) outcome {
	return l.request(w, "PUT", soakValue())
}

func (l *soakLoad) redisRead(_ context.Context, w *worker) outcome {
	_, outcome := w.any().command("GET", soakKey(w))
	return outcome
}

func (l *soakLoad) redisWrite(_ context.Context, w *worker) outcome {
	_, outcome := w.any().command("SET", soakKey(w), soakValue())
	return outcome
}

// transact adds to two keys of one slot at once.
func (l *soakLoad) transact(_ context.Context, w *worker) outcome {
	bank := fmt.Sprintf("soak-bank-%d", w.random.IntN(soakBanks))
	put := func(number int) any {
		return map[string]any{"put": map[string]any{"key": account(bank, number), "val": strconv.FormatUint(unique(), 10)}}
	}
	return w.any().ask("POST", "/v1/transactions", encode(map[string]any{"then": []any{put(0), put(1)}})).outcome
}

func (l *soakLoad) publish(_ context.Context, w *worker) outcome {
	namespace := fmt.Sprintf("soak-%d", w.random.IntN(soakNamespaces))
	return w.any().ask("POST", "/api/namespaces/"+namespace+"/publish", encode(map[string]any{
		"changes": []any{map[string]any{"pair": "value", "value": strconv.FormatUint(unique(), 10)}}, "message": "soak", "create": true,
	})).outcome
}

func (l *soakLoad) list(_ context.Context, w *worker) outcome {
	hundred := fmt.Sprintf("soak/%0*d", soakKeyBytes-len("soak/")-len("00"), w.random.IntN(soakKeys/100))
	return w.any().ask("GET", "/v1/keys?limit=100&prefix="+hundred, "").outcome
}

// lock grants a lease, acquires a lock and ends the lease, which releases it.
func (l *soakLoad) lock(_ context.Context, w *worker) outcome {
	var granted struct{ ID string }
	c := w.any()
	if answer := c.ask("POST", "/v1/leases", `{"ttl":"5s","tag":"soak-lock"}`); answer.outcome != done || !answer.into(&granted) {
		return unknown
	}
	lease := encode(map[string]any{"lease": granted.ID})
	if answer := c.ask("POST", "/v1/locks/soak-lock/acquire", lease); answer.outcome != done {
		return answer.outcome
	}
	return c.ask("POST", "/v1/locks/soak-lock/release", lease).outcome
}

// watch opens a stream, writes a key, and waits for the event of that write.
func (l *soakLoad) watch(ctx context.Context, w *worker) outcome {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := fmt.Sprintf("soak-watched/%d", w.id)
	response, err := w.any().stream(limited, "/v1/watch?prefix="+key)
	if err != nil {
		return unknown
	}
	defer response.Body.Close()
	value := strconv.FormatUint(unique(), 10)
	if written := w.any().ask("PUT", "/v1/keys/"+key, value); written.outcome != done {
		return written.outcome
	}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"`+value+`"`) {
			return done
		}
	}
	return unknown
}
