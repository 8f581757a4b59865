package main

import (
	"context"
	"syscall"
	"time"
)

func (f *faults) killOne(ctx context.Context, n *node) error { return f.kill(ctx, []*node{n}) }

func (f *faults) killAll(ctx context.Context) error { return f.kill(ctx, f.cluster.members()) }

func (f *faults) kill(ctx context.Context, nodes []*node) error {
	f.said("kill -9 of %s", names(nodes))
	for _, n := range nodes {
		n.kill()
	}
	wait(ctx, f.randomTime(3*time.Second))
	return f.startAll(nodes)
}

func (f *faults) pause(ctx context.Context, n *node) error {
	f.said("SIGSTOP of node %d", n.number)
	n.signal(syscall.SIGSTOP)
	<-ctx.Done()
	n.signal(syscall.SIGCONT)
	return nil
}

func (f *faults) powerLossOfOne(ctx context.Context) error {
	return f.powerLoss(ctx, []*node{f.some()})
}

func (f *faults) powerLossOfAll(ctx context.Context) error {
	return f.powerLoss(ctx, f.cluster.members())
}

// powerLoss kills nodes and takes back writes that were not synced: all of them, or the newest.
func (f *faults) powerLoss(ctx context.Context, nodes []*node) error {
	for _, n := range nodes {
		var kept int
		unsynced, err := n.losePower(func(unsynced int) int {
			if f.random.IntN(2) == 0 {
				kept = f.random.IntN(unsynced + 1)
			}
			return kept
		})
		if err != nil {
			return err
		}
		f.said("node %d loses its power, and %d of %d writes that were not synced", n.number, unsynced-kept, unsynced)
	}
	wait(ctx, f.randomTime(2*time.Second))
	return f.startAll(nodes)
}

func (f *faults) rollingRestart(context.Context) error {
	for _, n := range f.cluster.members() {
		f.said("node %d is restarted", n.number)
		n.stop()
		if err := n.start(); err != nil {
			return err
		}
		if err := f.untilServing(n); err != nil {
			return err
		}
	}
	return nil
}
