package main

import (
	"context"
	"time"
)

// clockJumps sets the wall clocks of nodes forward and back, by up to an hour.
func (f *faults) clockJumps(ctx context.Context) error {
	for ctx.Err() == nil {
		n := f.some()
		offset := time.Duration(f.random.IntN(7200)-3600) * time.Second
		f.said("the clock of node %d is off by %v", n.number, offset)
		set(&n.disk.control.clockOffsetNs, offset.Nanoseconds())
		wait(ctx, 500*time.Millisecond+f.randomTime(2500*time.Millisecond))
	}
	for _, n := range f.cluster.members() {
		set(&n.disk.control.clockOffsetNs, 0)
	}
	return nil
}

// clockRateMax is by how much a clock may be too fast, and too slow.
const clockRateMax = 2

// clockRates lets the clocks of nodes, monotonic and wall, run at half and at twice their rate. At
// its end wall clocks are set right at once, as an operator may do; monotonic clocks keep what
// they have shown.
//
// Real clocks differ by less than 1/1000. No promise depends on that, except for how long a lease
// lasts: the leader's clock measures it.
func (f *faults) clockRates(ctx context.Context) error {
	members := f.cluster.members()
	rates := []int64{1000 / clockRateMax, 1000, 1000 * clockRateMax}
	f.cluster.clocks.begin()
	first := f.random.IntN(2) * 2
	for i, n := range members {
		// At least two nodes differ, and one of them is not at the true rate.
		rate := rates[(first+i)%len(rates)]
		f.said("the clocks of node %d run at %.1f times their rate", n.number, float64(rate)/1000)
		set(&n.disk.control.clockRatePermille, rate)
	}
	<-ctx.Done()
	for _, n := range members {
		set(&n.disk.control.clockRatePermille, 1000)
	}
	f.cluster.clocks.end()
	return nil
}
