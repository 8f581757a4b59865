package main

import (
	"context"
	"syscall"
	"time"
)

func (f *faults) slowDisk(ctx context.Context) error {
	n := f.some()
	delay := []int64{200, 1000, 60_000}[f.random.IntN(3)]
	f.said("each sync of node %d takes %d ms longer", n.number, delay)
	set(&n.disk.control.syncDelayMs, delay)
	<-ctx.Done()
	n.disk.heal()
	return nil
}

// failingDisk lets syncs or writes of one node fail. The node may stop for that reason, and is
// started again when its disk works.
func failingDisk(which func(*control) *int64, errno syscall.Errno) func(*faults, context.Context) error {
	return func(f *faults, ctx context.Context) error {
		n := f.some()
		f.said("the disk of node %d fails: %v", n.number, errno)
		n.mayEnd.Add(1)
		defer n.mayEnd.Add(-1)
		set(which(n.disk.control), int64(errno))
		<-ctx.Done()
		n.disk.heal()
		// An error that the node met before may still end it now.
		for range 10 {
			wait(context.Background(), 100*time.Millisecond)
			if err := n.start(); err != nil {
				return err
			}
		}
		return nil
	}
}
