package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// foundBy is the workload that must find each planted fault.
var foundBy = map[string]string{"lying-disk": "durability", "stale-reads": "registers"}

// convictTime is how long a planted fault may go on until it is found. A busy machine needs longer.
const convictTime = 2 * time.Minute

// injectPlanted plants a fault, and makes what it takes to see it.
func (r *run) injectPlanted(ctx context.Context) error {
	f := &faults{r.cluster, rand.New(rand.NewPCG(r.seed, 0)), r.durability, r.say}
	plant := map[string]func(context.Context, *faults) error{"lying-disk": r.plantLyingDisk, "stale-reads": r.plantStaleReads}
	if err := plant[r.convict](ctx, f); err != nil {
		return err
	}
	_, err := r.recover(r.bound)
	return err
}

// plantLyingDisk lets syncs do nothing, and takes all writes back that were not synced.
func (r *run) plantLyingDisk(ctx context.Context, f *faults) error {
	for _, n := range r.cluster.members() {
		set(&n.disk.control.isLying, 1)
	}
	enough := len(r.durability.snapshot()) + 100
	for end := time.Now().Add(convictTime); time.Now().Before(end) && len(r.durability.snapshot()) < enough; {
		wait(ctx, 100*time.Millisecond)
	}
	for _, n := range r.cluster.members() {
		unsynced, err := n.losePower(func(int) int { return 0 })
		if err != nil {
			return err
		}
		f.said("node %d loses its power, and %d writes", n.number, unsynced)
		n.disk.heal()
	}
	return f.startAll(r.cluster.members())
}

// plantStaleReads pauses nodes, which then answer stale reads with what they knew before, until the
// checker finds one.
func (r *run) plantStaleReads(ctx context.Context, f *faults) error {
	for end := time.Now().Add(convictTime); time.Now().Before(end) && ctx.Err() == nil; {
		short, cancel := context.WithTimeout(ctx, time.Second)
		err := f.pause(short, f.some())
		cancel()
		if err != nil {
			return err
		}
		if r.expected().check(nil) != nil {
			return nil
		}
	}
	return nil
}

// expected is the workload that must find the planted fault.
func (r *run) expected() workload {
	isIt := func(load workload) bool { return load.name() == foundBy[r.convict] }
	return r.workloads[slices.IndexFunc(r.workloads, isIt)]
}

// judgePlanted passes if the workload that must find the planted fault has found it.
func (r *run) judgePlanted(failed error) []check {
	verdict := check{Name: "conviction of " + r.convict}
	if failed != nil {
		verdict.Error = failed.Error()
		return []check{verdict}
	}
	load := r.expected()
	w := newWorker(r.cluster, r.seed, 0)
	defer w.close()
	verdict.Operations = load.count()
	if finding := load.check(w); finding != nil {
		verdict.Finding = finding.Error()
	} else {
		verdict.Error = load.name() + " did not find it"
	}
	return []check{verdict}
}
