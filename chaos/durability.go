package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// durability: keys that are created once each. Those that were acknowledged are there at the end, those that were refused not.
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

// gap is the longest time without an acknowledged write since it was last asked for, as far as it is over.
func (d *durability) gap() time.Duration {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	longest := d.longestGap
	d.longestGap = 0
	return longest
}

func (d *durability) check(w *worker) error {
	present := map[string]bool{}
	after := ""
	for {
		var page struct {
			Items []struct{ Key string }
			Next  *string
		}
		if err := w.until("a page of keys", func(c *client) bool {
			found := c.ask("GET", "/v1/keys?prefix=created/&keys=true&limit=1000&after="+after, "")
			return found.outcome == done && found.into(&page)
		}); err != nil {
			return err
		}
		for _, item := range page.Items {
			present[item.Key] = true
		}
		if page.Next == nil || *page.Next == "" {
			break
		}
		after = *page.Next
	}
	var lost, revived int
	var example string
	for _, key := range d.acknowledged {
		if !present[key] {
			lost++
			example = key
		}
	}
	for _, key := range d.refused {
		if present[key] {
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
