package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// workload is what some clients do, and how it is judged.
type workload interface {
	name() string
	// clients is how many clients run at a time.
	clients() int
	// step is one operation of a client.
	step(ctx context.Context, w *worker)
	// check judges everything at the end. All faults are over and all nodes serve.
	check(w *worker) error
	// count is how many operations were judged.
	count() int
}

// worker is one client of a workload.
type worker struct {
	cluster *cluster
	random  *rand.Rand
	known   map[int]*client
	id      int
	place   int // among the clients of its workload
}

func newWorker(cluster *cluster, seed uint64, id int) *worker {
	return &worker{cluster: cluster, random: rand.New(rand.NewPCG(seed, uint64(id))), known: map[int]*client{}, id: id}
}

// any is a client of some member.
func (w *worker) any() *client {
	members := w.cluster.members()
	return w.of(members[w.random.IntN(len(members))])
}

// own is the client of the member that this worker keeps to, so that no fault of one node holds all
// workers up.
func (w *worker) own() *client {
	members := w.cluster.members()
	return w.of(members[w.place%len(members)])
}

func (w *worker) of(n *node) *client {
	if w.known[n.number] == nil {
		w.known[n.number] = w.cluster.client(n.number)
	}
	return w.known[n.number]
}

func (w *worker) close() {
	for _, client := range w.known {
		client.close()
	}
}

// until repeats a step that changes nothing, or that may happen twice, until it is done.
func (w *worker) until(what string, step func(*client) bool) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if step(w.any()) {
			return nil
		}
	}
	return fmt.Errorf("not within a minute: %s", what)
}

// unique is a number that nothing else of the run has.
func unique() uint64 { return uniqueNumbers.Add(1) }

var uniqueNumbers atomic.Uint64

// generation names objects that get new names, so that each has a short history, which can be
// judged.
type generation struct{ steps atomic.Uint64 }

func (g *generation) next(every uint64) uint64 { return g.steps.Add(1) / every }
