package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// durability: keys that are created once each. Those that were acknowledged are there at the end
// with their values, those that were refused not.
type durability struct {
	mutex        sync.Mutex
	acknowledged []string
	refused      []string
	lastDone     time.Time
	longestGap   time.Duration // without an acknowledged write, since the last call of gap
}

func (d *durability) name() string { return "durability" }
func (d *durability) clients() int { return 4 }
func (d *durability) count() int   { return len(d.acknowledged) + len(d.refused) }

func (d *durability) step(_ context.Context, w *worker) {
	key := fmt.Sprintf("created/%d", unique())
	created := w.own().ask("PUT", "/v1/keys/"+key, key+strings.Repeat("x", w.random.IntN(2000)), "If-None-Match", "*")
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch created.outcome {
	case done:
		d.acknowledged = append(d.acknowledged, key)
		now := time.Now()
		if !d.lastDone.IsZero() {
			d.longestGap = max(d.longestGap, now.Sub(d.lastDone))
		}
		d.lastDone = now
	case refused:
		d.refused = append(d.refused, key)
	}
}

// gap is the longest time without an acknowledged write since it was last asked for, as far as it
// is over.
func (d *durability) gap() time.Duration {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	longest := d.longestGap
	d.longestGap = 0
	return longest
}

// snapshot is the keys that were acknowledged by now.
func (d *durability) snapshot() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.Clone(d.acknowledged)
}

// entry is a key as a list shows it.
type entry struct {
	Key, Val string
	Ver      uint64
}

// createdKeys lists all keys of this workload.
func createdKeys(next func(path string) (answer, error)) (map[string]entry, error) {
	present := map[string]entry{}
	after := ""
	for {
		var page struct {
			Items []entry
			Next  *string
		}
		found, err := next("/v1/keys?prefix=created/&limit=1000&after=" + after)
		if err != nil {
			return nil, err
		}
		if !found.into(&page) {
			return nil, fmt.Errorf("no page of keys: %s", found.body)
		}
		for _, item := range page.Items {
			present[item.Key] = item
		}
		if page.Next == nil || *page.Next == "" {
			return present, nil
		}
		after = *page.Next
	}
}

// isWhole says whether the value is what was written: the key, and some letters.
func (e entry) isWhole() bool {
	rest, found := strings.CutPrefix(e.Val, e.Key)
	return found && strings.Trim(rest, "x") == ""
}

// page asks for a page of keys until a node answers.
func (w *worker) page(path string) (found answer, err error) {
	err = w.until("a page of keys", func(c *client) bool {
		found = c.ask("GET", path, "")
		return found.outcome == done
	})
	return found, err
}

func (d *durability) check(w *worker) error {
	present, err := createdKeys(w.page)
	if err != nil {
		return err
	}
	for _, item := range present {
		if !item.isWhole() {
			return fmt.Errorf("the value of %s is not what was written: %.80q…", item.Key, item.Val)
		}
	}
	var lost, revived int
	var example string
	for _, key := range d.acknowledged {
		if _, isPresent := present[key]; !isPresent {
			lost++
			example = key
		}
	}
	for _, key := range d.refused {
		if _, isPresent := present[key]; isPresent {
			revived++
			example = key
		}
	}
	if lost+revived > 0 {
		return fmt.Errorf("%d of %d acknowledged writes are lost, %d of %d refused ones were done, such as %s", lost,
			len(d.acknowledged), revived, len(d.refused), example)
	}
	return nil
}
