package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// locks: holders of a lock write with its fence, as long as they take themselves for the holder,
// and sometimes longer.
type locks struct {
	mutex  sync.Mutex
	held   []holding
	writes []fencedWrite
	leases map[int]string // of each client
}

// holding is a lock that was acquired.
type holding struct {
	fence             uint64
	lease             string
	asked, acquiredAt time.Time
}

// fencedWrite is a write that was accepted.
type fencedWrite struct{ fence, version uint64 }

func newLocks() *locks { return &locks{leases: map[int]string{}} }

func (l *locks) name() string { return "locks" }
func (l *locks) clients() int { return 3 }
func (l *locks) count() int   { return len(l.held) + len(l.writes) }

func (l *locks) step(_ context.Context, w *worker) {
	l.mutex.Lock()
	lease := l.leases[w.id]
	l.mutex.Unlock()
	if lease == "" {
		var granted struct{ ID string }
		if answer := w.any().ask("POST", "/v1/leases", `{"ttl":"2s","tag":"lock"}`); answer.outcome != done || !answer.into(&granted) {
			return
		}
		lease = granted.ID
		l.keep(w, lease)
	}
	asked := time.Now()
	acquired := w.any().ask("POST", "/v1/locks/lock/acquire", encode(map[string]any{"lease": lease, "wait": "2s"}))
	var held struct{ Fence uint64 }
	if acquired.status == 404 {
		l.keep(w, "")
	}
	if acquired.outcome != done || !acquired.into(&held) {
		return
	}
	l.mutex.Lock()
	l.held = append(l.held, holding{held.Fence, lease, asked, time.Now()})
	l.mutex.Unlock()
	for range 1 + w.random.IntN(3) {
		put := w.any().ask("PUT", "/v1/keys/"+url.PathEscape("{lock}done"), strconv.FormatUint(held.Fence, 10),
			"If-Fence", fmt.Sprintf("lock=%d", held.Fence))
		if version, err := strconv.ParseUint(strings.Trim(put.version, `"`), 10, 64); put.outcome == done && err == nil {
			l.mutex.Lock()
			l.writes = append(l.writes, fencedWrite{held.Fence, version})
			l.mutex.Unlock()
		}
	}
	switch w.random.IntN(3) {
	case 0:
		// Forgotten: it passes on when the lease ends.
		l.keep(w, "")
	default:
		w.any().ask("POST", "/v1/locks/lock/release", encode(map[string]any{"lease": lease}))
	}
}

func (l *locks) keep(w *worker, lease string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.leases[w.id] = lease
}

// passesOn acquires the lock, whose holders and waiters no longer renew their leases. These end
// within seconds, whatever the clocks of former leaders have shown.
func (l *locks) passesOn(w *worker) error {
	var granted struct{ ID string }
	grant := func(c *client) bool {
		answer := c.ask("POST", "/v1/leases", `{"ttl":"5m","tag":"lock"}`)
		return answer.outcome == done && answer.into(&granted)
	}
	if err := w.until("a lease is granted", grant); err != nil {
		return err
	}
	acquire := func(c *client) bool {
		answer := c.ask("POST", "/v1/locks/lock/acquire", encode(map[string]any{"lease": granted.ID, "wait": "2s"}))
		var held struct{ Fence uint64 }
		return answer.outcome == done && answer.into(&held) && held.Fence > 0
	}
	return w.until("the lock passes on from those who do not renew their leases", acquire)
}

// check: the lock passes on; a fence belongs to one lease; fences rise with time; and accepted
// writes have fences that rise with their versions.
func (l *locks) check(w *worker) error {
	if err := l.passesOn(w); err != nil {
		return err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	holders := map[uint64]string{}
	for _, h := range l.held {
		if other, known := holders[h.fence]; known && other != h.lease {
			return fmt.Errorf("the fence %d belongs to the leases %s and %s", h.fence, other, h.lease)
		}
		holders[h.fence] = h.lease
	}
	slices.SortFunc(l.held, func(a, b holding) int { return a.acquiredAt.Compare(b.acquiredAt) })
	byAsked := slices.Clone(l.held)
	slices.SortFunc(byAsked, func(a, b holding) int { return a.asked.Compare(b.asked) })
	highest, next := uint64(0), 0
	for _, h := range byAsked {
		for ; next < len(l.held) && l.held[next].acquiredAt.Before(h.asked); next++ {
			highest = max(highest, l.held[next].fence)
		}
		if h.fence < highest {
			return fmt.Errorf("the fence %d was given out after %d", h.fence, highest)
		}
	}
	slices.SortFunc(l.writes, func(a, b fencedWrite) int { return int(int64(a.version) - int64(b.version)) })
	for i := 1; i < len(l.writes); i++ {
		if l.writes[i].fence < l.writes[i-1].fence {
			return fmt.Errorf("a write with the fence %d follows one with %d", l.writes[i].fence, l.writes[i-1].fence)
		}
	}
	return nil
}

// leases: a bound key is there for as long as its lease was said to last.
type leases struct {
	mutex   sync.Mutex
	renewed int
	ended   []string // problems that were found
}

func (l *leases) name() string { return "leases" }
func (l *leases) clients() int { return 2 }
func (l *leases) count() int   { return l.renewed }

func (l *leases) step(ctx context.Context, w *worker) {
	var granted struct {
		ID       string
		ValidFor int64 `json:"valid_for_ms"`
	}
	asked := time.Now()
	answer := w.any().ask("POST", "/v1/leases", `{"ttl":"5s"}`)
	if answer.outcome != done || !answer.into(&granted) {
		return
	}
	promised := lifetime{asked, time.Duration(granted.ValidFor) * time.Millisecond}
	tag, _, _ := strings.Cut(granted.ID, ":")
	path := "/v1/keys/" + url.PathEscape(fmt.Sprintf("%salive-%d", tag, unique()))
	if w.any().ask("PUT", path+"?lease="+url.QueryEscape(granted.ID), "up").outcome != done {
		return
	}
	for range 10 + w.random.IntN(20) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(300 * time.Millisecond):
		}
		read := w.any().ask("GET", path, "")
		if read.status == 404 {
			l.judge(path, promised, w.cluster.clocks.since(promised.asked))
			return
		}
		asked = time.Now()
		var renewed struct {
			Leases []struct {
				ValidFor *int64 `json:"valid_for_ms"`
			}
		}
		answer := w.any().ask("POST", "/v1/leases/renew", encode(map[string]any{"ids": []string{granted.ID}}))
		if answer.outcome == done && answer.into(&renewed) && len(renewed.Leases) == 1 && renewed.Leases[0].ValidFor != nil {
			promised = lifetime{asked, time.Duration(*renewed.Leases[0].ValidFor) * time.Millisecond}
			l.mutex.Lock()
			l.renewed++
			l.mutex.Unlock()
		}
	}
}

// lifetime is how long a lease lasts at least, from the moment at which a client asked.
type lifetime struct {
	asked time.Time
	valid time.Duration
}

// judge records that a key is gone. The clock of the leader measures how long a lease lasts, and
// another node says how much of it is left, by what it measured of that clock within the last
// election timeout: both are wrong if the clock runs at a wrong rate.
func (l *leases) judge(path string, promised lifetime, hadWrongClocks bool) {
	if hadWrongClocks {
		promised.valid = promised.valid/clockRateMax - 2*electionTimeout
	}
	early := time.Until(promised.asked.Add(promised.valid))
	if early <= 0 {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.ended = append(l.ended, fmt.Sprintf("%s: %s ended %v early", time.Now().Format("15:04:05.000"), path, early))
}

func (l *leases) check(*worker) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.ended) > 0 {
		return fmt.Errorf("%d keys: %s", len(l.ended), l.ended[0])
	}
	return nil
}

// watches: streams of the keys of a prefix, which a writer changes. A stream may leave states out,
// never goes back, and ends with the state.
type watches struct {
	mutex    sync.Mutex
	watchers []*watched
	events   int
	problems []string
}

// watched is what one watcher knows.
type watched struct {
	values   map[string]string
	versions map[string]uint64
	cursor   string
}

const watchedKeys = 8

func (s *watches) name() string { return "watches" }
func (s *watches) clients() int { return 4 }
func (s *watches) count() int   { return s.events }

// step: the first client writes, the others watch.
func (s *watches) step(ctx context.Context, w *worker) {
	if w.place == 0 {
		key := fmt.Sprintf("/v1/keys/watched/%d", w.random.IntN(watchedKeys))
		if w.random.IntN(5) == 0 {
			w.any().ask("DELETE", key, "")
		} else {
			w.any().ask("PUT", key, strconv.FormatUint(unique(), 10))
		}
		return
	}
	s.mutex.Lock()
	place := w.place - 1
	for len(s.watchers) <= place {
		s.watchers = append(s.watchers, &watched{values: map[string]string{}, versions: map[string]uint64{}})
	}
	state := s.watchers[place]
	s.mutex.Unlock()
	limited, cancel := context.WithTimeout(ctx, time.Duration(2+w.random.IntN(8))*time.Second)
	defer cancel()
	s.follow(limited, w.any(), state, "")
}

// follow takes in the events of one connection, until the context ends or, if it is given, an event
// of this name has come.
func (s *watches) follow(ctx context.Context, c *client, state *watched, until string) bool {
	var headers []string
	if state.cursor != "" {
		headers = []string{"Last-Event-ID", state.cursor}
	}
	response, err := c.stream(ctx, "/v1/watch?prefix=watched/", headers...)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		return false
	}
	fields := map[string]string{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, value, isField := strings.Cut(lines.Text(), ": "); isField {
			fields[name] = value
			continue
		}
		if name := fields["event"]; name != "" {
			s.take(state, name, fields["data"])
			if id := fields["id"]; id != "" {
				state.cursor = id
			}
			if name == until {
				return true
			}
		}
		clear(fields)
	}
	return false
}

func (s *watches) take(state *watched, name, data string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.events++
	switch name {
	case "reset":
		clear(state.values)
		clear(state.versions)
	case "put", "delete":
		var event struct {
			Key, Val string
			Ver      uint64
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			s.problems = append(s.problems, fmt.Sprintf("%s: %v", data, err))
			return
		}
		if event.Ver < state.versions[event.Key] {
			s.problems = append(s.problems, fmt.Sprintf("%s goes back from version %d to %d", event.Key, state.versions[event.Key], event.Ver))
		}
		state.versions[event.Key] = event.Ver
		state.values[event.Key] = event.Val
		if name == "delete" {
			delete(state.values, event.Key)
		}
	}
}

func (s *watches) check(w *worker) error {
	present := map[string]string{}
	for number := range watchedKeys {
		key := fmt.Sprintf("watched/%d", number)
		if err := w.until("a read of "+key, func(c *client) bool {
			found := c.ask("GET", "/v1/keys/"+key, "")
			if found.status == 200 {
				present[key] = string(found.body)
			}
			return found.status == 200 || found.status == 404
		}); err != nil {
			return err
		}
	}
	for _, state := range s.watchers {
		// Up to the present state: `live` comes when the watcher knows it.
		if err := w.until("a watch that is live", func(c *client) bool {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return s.follow(ctx, c, state, "live")
		}); err != nil {
			return err
		}
		for number := range watchedKeys {
			key := fmt.Sprintf("watched/%d", number)
			if state.values[key] != present[key] {
				return fmt.Errorf("a watcher knows %q of %s, which is %q", state.values[key], key, present[key])
			}
		}
	}
	if len(s.problems) > 0 {
		return fmt.Errorf("%d problems: %s", len(s.problems), s.problems[0])
	}
	return nil
}
