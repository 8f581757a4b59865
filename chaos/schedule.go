package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// tally is what is known of one fault, or of two that came together.
type tally struct {
	times           int
	longestGap      time.Duration // without an acknowledged write, of all clients together
	longestRecovery time.Duration // from its end until all nodes served
	longest         time.Duration // from its beginning until all nodes served
}

const (
	// shortestFault is how long a fault lasts at least.
	shortestFault = time.Second
	// recoveryTime is what the schedule allows for a fault to begin, and for the nodes to serve
	// again.
	recoveryTime = 1500 * time.Millisecond
)

// choose returns the faults that can be injected here, and notes those that cannot.
func (r *run) choose() (possible []fault) {
	wanted := r.names()
	for _, f := range allFaults {
		reason := ""
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, f.name):
			continue
		case f.needs == namespaces && r.cluster.network == nil:
			reason = "it needs network namespaces"
		case f.needs == tlsFiles && r.cluster.security == nil:
			reason = "it needs TLS"
		default:
			possible = append(possible, f)
			continue
		}
		r.say("SKIPPED %s: %s", f.name, reason)
		r.skipped = append(r.skipped, skippedFault{f.name, reason})
	}
	return possible
}

// injectAll injects faults until the time is over: each alone in a random order, then two at a
// time. The first round is always complete; its faults are shorter if there is little time.
func (r *run) injectAll(ctx context.Context) error {
	possible := r.choose()
	if len(possible) == 0 {
		return errors.New("no fault is left to inject")
	}
	random := rand.New(rand.NewPCG(r.seed, 0))
	end := time.Now().Add(time.Duration(r.seconds) * time.Second)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		order := slices.Clone(possible)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i, first := range order {
			if round > 0 && !time.Now().Before(end) {
				return nil
			}
			together := []fault{first}
			if second := order[(i+1)%len(order)]; round > 0 && canBeTogether(first, second) {
				together = append(together, second)
			}
			limit := time.Duration(r.faultSeconds) * time.Second
			if round == 0 {
				limit = min(limit, time.Until(end)/time.Duration(len(order)-i)-recoveryTime)
			}
			if err := r.inject(ctx, random, together, limit); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
	}
	return nil
}

func canBeTogether(one, other fault) bool { return !one.alone && !other.alone && one.on != other.on }

// inject lets faults happen at the same time, and waits until all nodes serve again. The draws from
// `random` do not depend on time, so a seed means the same faults on every machine.
func (r *run) inject(ctx context.Context, random *rand.Rand, together []fault, limit time.Duration) error {
	var all []string
	least := shortestFault
	for _, one := range together {
		all = append(all, one.name)
		least = max(least, one.least)
	}
	name := strings.Join(all, " + ")
	r.durability.gap()
	duration := least + time.Duration(random.Float64()*float64(max(0, limit-least)))
	began := time.Now()
	lasting, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	results := make(chan error, len(together))
	for _, one := range together {
		f := &faults{r.cluster, rand.New(rand.NewPCG(random.Uint64(), 0)), r.durability, r.say}
		go func() { results <- one.inject(f, lasting) }()
	}
	var failed error
	for range together {
		failed = errors.Join(failed, r.note(name, <-results))
	}
	if failed != nil {
		return fmt.Errorf("%s: %w", name, failed)
	}
	took, err := r.recover(r.bound)
	if err != nil {
		return fmt.Errorf("%v after %s: %w", took.Round(time.Millisecond), name, err)
	}
	t := r.tallies[name]
	if t == nil {
		t = &tally{}
		r.tallies[name] = t
	}
	t.times++
	t.longestGap = max(t.longestGap, r.durability.gap())
	t.longestRecovery = max(t.longestRecovery, took)
	t.longest = max(t.longest, time.Since(began))
	return nil
}

// note keeps a broken promise for the end of the run, and returns any other error.
func (r *run) note(name string, err error) error {
	var promise *violation
	if !errors.As(err, &promise) {
		return err
	}
	text := fmt.Sprintf("%s: %v", name, err)
	r.say("BROKEN  %s", text)
	r.broken = append(r.broken, text)
	return nil
}
