package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"
)

const (
	sampleEvery = 5 * time.Second
	changeEvery = 15 * time.Second
)

// soak keeps the cluster under load, with changes of members, moves of slots, snapshots and
// restarts, and checks that what the nodes use, and how long clients wait, stays the same.
//
// The first node is never restarted, so that a leak adds up.
func (r *run) soak(ctx context.Context) ([]check, error) {
	lasting, stop := context.WithTimeout(ctx, time.Duration(r.soakMinutes)*time.Minute)
	defer stop()
	load := newSoakLoad()
	var clients sync.WaitGroup
	for number, kind := range soakKinds {
		for id := range kind.clients {
			clients.Go(func() { r.soakClient(lasting, load, number, id) })
		}
	}
	samples := newSamples(r.cluster.members())
	clients.Go(func() { samples.collect(lasting, load) })
	failed := r.soakChanges(lasting)
	if failed != nil {
		stop()
	}
	clients.Wait()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return r.judgeSoak(samples, load, failed)
}

func (r *run) judgeSoak(samples *samples, load *soakLoad, failed error) ([]check, error) {
	for name, write := range map[string]func(string) error{
		"soak-nodes.csv": samples.writeNodes, "soak-clients.csv": samples.writeClients, "soak.svg": samples.writePlot,
	} {
		path := filepath.Join(r.cluster.directory, name)
		if err := write(path); err != nil {
			return nil, err
		}
		r.say("%s", path)
	}
	judged := checks{run: r}
	judged.add("changes", 0, failed)
	judged.add("versions", load.count(), load.check())
	for _, verdict := range samples.verdicts() {
		judged.add(verdict.name, 0, verdict.err)
	}
	_, unequal := r.cluster.cli("cluster", "status", "--verify", "--wait-s", "60")
	judged.add("equal replicas", 0, unequal)
	judged.add("processes", 0, r.unexpectedEnds())
	return judged.list, nil
}

// soakChanges changes the cluster now and then, until the context ends.
func (r *run) soakChanges(ctx context.Context) error {
	f := &faults{r.cluster, rand.New(rand.NewPCG(r.seed, 0)), r.durability, r.say}
	changes := []func(context.Context) error{
		func(ctx context.Context) error {
			moving, stop := context.WithTimeout(ctx, 3*time.Second)
			defer stop()
			return f.slotMoves(moving)
		},
		func(context.Context) error {
			w := newWorker(r.cluster, 0, 0)
			defer w.close()
			for _, n := range r.cluster.members() {
				r.say("node %d makes snapshots", n.number)
				w.of(n).ask("POST", "/v1/snapshots", "")
			}
			return nil
		},
		func(ctx context.Context) error {
			changing, stop := context.WithTimeout(ctx, 2*time.Second)
			defer stop()
			return f.transfers(changing)
		},
		func(context.Context) error {
			n := r.cluster.members()[1+f.random.IntN(founders-1)]
			r.say("node %d is restarted", n.number)
			n.stop()
			return n.start()
		},
		func(context.Context) error { return f.joinAndLeave() },
	}
	for round := 0; ; round++ {
		wait(ctx, changeEvery)
		if ctx.Err() != nil {
			return nil
		}
		if err := changes[round%len(changes)](ctx); err != nil {
			return err
		}
		if _, err := r.recover(r.bound); err != nil {
			return err
		}
	}
}

// joinAndLeave lets a node join, hold replicas for a while, and leave.
func (f *faults) joinAndLeave() error {
	joined, err := f.join(f.some())
	if err != nil {
		return err
	}
	number, err := f.hostNumber(joined)
	if err != nil {
		return err
	}
	f.said("node %d has joined, and leaves", joined.number)
	joined.mayEnd.Add(1)
	if _, err := f.cluster.cli("cluster", "remove", fmt.Sprint(number), "--wait-s", "120"); err != nil {
		return err
	}
	f.cluster.retire(joined)
	return nil
}

// soakClient is the life of one client of the load.
func (r *run) soakClient(ctx context.Context, load *soakLoad, kind, id int) {
	w := newWorker(r.cluster, r.seed, 1000*kind+id)
	w.place = id
	defer w.close()
	for ctx.Err() == nil {
		began := time.Now()
		outcome := soakKinds[kind].step(load, ctx, w)
		load.note(kind, time.Since(began), outcome)
		wait(ctx, time.Duration(w.random.IntN(2*soakKinds[kind].pauseMs+1))*time.Millisecond)
	}
}
