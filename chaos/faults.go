package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// fault is something that happens to a cluster, for as long as its context lasts, and is over when it returns.
type fault struct {
	name string
	// What it acts on. Two faults at a time act on different things.
	on     target
	inject func(f *faults, ctx context.Context) error
}

type target int

const (
	processes target = iota
	links
	disks
	members
)

// faults injects faults into a cluster.
type faults struct {
	cluster *cluster
	random  *rand.Rand
	// What happened, for the report.
	said func(format string, values ...any)
}

var allFaults = []fault{
	{"kill-leader", processes, func(f *faults, ctx context.Context) error { return f.kill(ctx, f.leader()) }},
	{"kill-follower", processes, func(f *faults, ctx context.Context) error { return f.kill(ctx, f.other(f.leader())) }},
	{"kill-all", processes, func(f *faults, ctx context.Context) error { return f.kill(ctx, f.cluster.members()...) }},
	{"pause-leader", processes, func(f *faults, ctx context.Context) error { return f.pause(ctx, f.leader()) }},
	{"pause-follower", processes, func(f *faults, ctx context.Context) error { return f.pause(ctx, f.other(f.leader())) }},
	{"isolate-leader", links, func(f *faults, ctx context.Context) error { return f.isolate(ctx, f.leader()) }},
	{"isolate-follower", links, func(f *faults, ctx context.Context) error { return f.isolate(ctx, f.other(f.leader())) }},
	{"no-majority", links, (*faults).noMajority},
	{"one-way", links, (*faults).oneWay},
	{"bridge", links, (*faults).bridge},
	{"flapping", links, (*faults).flapping},
	{"slow-disk", disks, (*faults).slowDisk},
	{"failing-sync", disks, func(f *faults, ctx context.Context) error {
		return f.failingDisk(ctx, func(c *control) { set(&c.syncErrno, int64(syscall.EIO)) })
	}},
	{"failing-write", disks, func(f *faults, ctx context.Context) error {
		return f.failingDisk(ctx, func(c *control) { set(&c.writeErrno, int64(syscall.EIO)) })
	}},
	{"full-disk", disks, func(f *faults, ctx context.Context) error {
		return f.failingDisk(ctx, func(c *control) { set(&c.writeErrno, int64(syscall.ENOSPC)) })
	}},
	{"power-loss", processes, func(f *faults, ctx context.Context) error { return f.powerLoss(ctx, f.some()) }},
	{"power-loss-of-all", processes, func(f *faults, ctx context.Context) error { return f.powerLoss(ctx, f.cluster.members()...) }},
	{"clock-jumps", disks, (*faults).clockJumps},
	{"rolling-restart", processes, (*faults).rollingRestart},
	{"replaced-member", members, (*faults).replaceMember},
	{"slot-moves", members, (*faults).slotMoves},
	{"transfers", members, (*faults).transfers},
}

// some is any member.
func (f *faults) some() *node {
	all := f.cluster.members()
	return all[f.random.IntN(len(all))]
}

// other is any member but this one.
func (f *faults) other(than *node) *node {
	for {
		if n := f.some(); n != than {
			return n
		}
	}
}

// leader is a node that leads a shard with data, or any if none is known.
func (f *faults) leader() *node {
	var view struct {
		Hosts []struct {
			Node int
			HTTP string `json:"http_address"`
		}
		Shards []struct {
			Type   string
			Leader *int
		}
	}
	n := f.some()
	c := newClient(f.cluster.endpoint(n.number, 0), f.cluster.endpoint(n.number, 1))
	defer c.close()
	if !c.ask("GET", "/v1/cluster", "").into(&view) {
		return n
	}
	var leading []*node
	for _, shard := range view.Shards {
		for _, host := range view.Hosts {
			if shard.Type == "kv" && shard.Leader != nil && host.Node == *shard.Leader {
				for _, member := range f.cluster.members() {
					if strings.HasSuffix(host.HTTP, f.cluster.endpoint(member.number, 0)) {
						leading = append(leading, member)
					}
				}
			}
		}
	}
	if len(leading) == 0 {
		return n
	}
	return leading[f.random.IntN(len(leading))]
}

// wait lasts for a time, or until the context ends.
func wait(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

func (f *faults) kill(ctx context.Context, nodes ...*node) error {
	f.said("kill -9 of %s", names(nodes))
	for _, n := range nodes {
		n.kill()
	}
	wait(ctx, time.Duration(f.random.IntN(3000))*time.Millisecond)
	return f.startAll(nodes)
}

func (f *faults) startAll(nodes []*node) error {
	for _, n := range nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

func names(nodes []*node) string {
	var numbers []string
	for _, n := range nodes {
		numbers = append(numbers, fmt.Sprintf("node %d", n.number))
	}
	return strings.Join(numbers, ", ")
}

func (f *faults) pause(ctx context.Context, n *node) error {
	f.said("SIGSTOP of node %d", n.number)
	n.signal(syscall.SIGSTOP)
	<-ctx.Done()
	n.signal(syscall.SIGCONT)
	return nil
}

// cuts loses what is sent along pairs of nodes, until the context ends.
func (f *faults) cuts(ctx context.Context, pairs [][2]*node) error {
	defer func() {
		for _, pair := range pairs {
			f.cluster.network.join(pair[0].number, pair[1].number)
		}
	}()
	for _, pair := range pairs {
		if err := f.cluster.network.cut(pair[0].number, pair[1].number); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// between are the pairs that separate some nodes from all others, in both directions.
func (f *faults) between(nodes ...*node) [][2]*node {
	var pairs [][2]*node
	for _, one := range nodes {
		for _, other := range f.cluster.members() {
			if one != other {
				pairs = append(pairs, [2]*node{one, other}, [2]*node{other, one})
			}
		}
	}
	return pairs
}

func (f *faults) isolate(ctx context.Context, n *node) error {
	f.said("node %d is cut off from the others", n.number)
	return f.cuts(ctx, f.between(n))
}

func (f *faults) noMajority(ctx context.Context) error {
	f.said("all nodes are cut off from one another")
	return f.cuts(ctx, f.between(f.cluster.members()...))
}

func (f *faults) oneWay(ctx context.Context) error {
	from := f.leader()
	to := f.other(from)
	if f.random.IntN(2) == 0 {
		from, to = to, from
	}
	f.said("what node %d sends to node %d is lost", from.number, to.number)
	return f.cuts(ctx, [][2]*node{{from, to}})
}

func (f *faults) bridge(ctx context.Context) error {
	one := f.leader()
	other := f.other(one)
	f.said("node %d and node %d reach only the others", one.number, other.number)
	return f.cuts(ctx, [][2]*node{{one, other}, {other, one}})
}

func (f *faults) flapping(ctx context.Context) error {
	n := f.leader()
	f.said("node %d is cut off again and again", n.number)
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, time.Duration(100+f.random.IntN(900))*time.Millisecond)
		err := f.cuts(short, f.between(n))
		cancel()
		if err != nil {
			return err
		}
		wait(ctx, time.Duration(100+f.random.IntN(900))*time.Millisecond)
	}
	return nil
}

func (f *faults) slowDisk(ctx context.Context) error {
	n := f.some()
	delay := []int64{200, 1000, 60_000}[f.random.IntN(3)]
	f.said("each sync of node %d takes %d ms longer", n.number, delay)
	set(&n.disk.control.syncDelayMs, delay)
	<-ctx.Done()
	n.disk.heal()
	return nil
}

// failingDisk gives a node a disk that fails. The node may end by that, and is started again when the disk is whole.
func (f *faults) failingDisk(ctx context.Context, fail func(*control)) error {
	n := f.some()
	f.said("the disk of node %d fails", n.number)
	n.mayEnd.Add(1)
	defer n.mayEnd.Add(-1)
	fail(n.disk.control)
	<-ctx.Done()
	n.disk.heal()
	// What it has met before makes it end now.
	for range 10 {
		wait(context.Background(), 100*time.Millisecond)
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

// powerLoss kills nodes and takes back what their disks had not synced, all of it or the newest part.
func (f *faults) powerLoss(ctx context.Context, nodes ...*node) error {
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
	wait(ctx, time.Duration(f.random.IntN(2000))*time.Millisecond)
	return f.startAll(nodes)
}

func (f *faults) clockJumps(ctx context.Context) error {
	for ctx.Err() == nil {
		n := f.some()
		offset := time.Duration(f.random.IntN(7200)-3600) * time.Second
		f.said("the clock of node %d is off by %v", n.number, offset)
		set(&n.disk.control.clockOffsetNs, offset.Nanoseconds())
		wait(ctx, time.Duration(500+f.random.IntN(2500))*time.Millisecond)
	}
	for _, n := range f.cluster.members() {
		set(&n.disk.control.clockOffsetNs, 0)
	}
	return nil
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

// untilServing waits until a node answers a linearizable read.
func (f *faults) untilServing(n *node) error {
	w := newWorker(f.cluster, 0, 0)
	defer w.close()
	return w.until(fmt.Sprintf("node %d serves", n.number), func(*client) bool {
		found := w.of(n).ask("GET", "/v1/keys/none", "")
		return found.status == 404
	})
}

// replaceMember lets another node join, and takes a member out for good.
func (f *faults) replaceMember(context.Context) error {
	leaving := f.some()
	joined, err := f.cluster.add("--join", f.cluster.endpoint(f.other(leaving).number, 2))
	if err != nil {
		return err
	}
	f.said("node %d joins and node %d leaves", joined.number, leaving.number)
	if err := f.untilServing(joined); err != nil {
		return err
	}
	number, err := f.memberNumber(leaving)
	if err != nil {
		return err
	}
	leaving.mayEnd.Add(1)
	if _, err := f.cluster.cli("cluster", "remove", fmt.Sprint(number), "--wait-s", "60"); err != nil {
		return err
	}
	f.cluster.retire(leaving)
	return nil
}

// memberNumber is the number by which the cluster knows a node. It is not known before the node has registered.
func (f *faults) memberNumber(n *node) (number int, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if number, err = f.registeredNumber(n); err == nil {
			break
		}
	}
	return number, err
}

func (f *faults) registeredNumber(n *node) (int, error) {
	text, err := f.cluster.cli("cluster", "status", "--output", "json")
	if err != nil {
		return 0, err
	}
	var view struct {
		Hosts []struct {
			Node int
			HTTP string `json:"http_address"`
		}
	}
	if err := json.Unmarshal([]byte(text), &view); err != nil {
		return 0, fmt.Errorf("%w: %s", err, text)
	}
	for _, host := range view.Hosts {
		if strings.HasSuffix(host.HTTP, f.cluster.endpoint(n.number, 0)) {
			return host.Node, nil
		}
	}
	return 0, fmt.Errorf("no host has the address of node %d: %s", n.number, text)
}

func (f *faults) slotMoves(ctx context.Context) error {
	w := newWorker(f.cluster, f.random.Uint64(), 0)
	defer w.close()
	for ctx.Err() == nil {
		first := f.random.IntN(16_000)
		last, shard := first+f.random.IntN(384), 1+f.random.IntN(3)
		f.said("slots %d-%d move to shard %d", first, last, shard)
		// Refused while some of them are moving.
		w.any().ask("POST", fmt.Sprintf("/v1/cluster/shards/%d/slots", shard), fmt.Sprintf(`{"slots":"%d-%d"}`, first, last))
		wait(ctx, 200*time.Millisecond)
	}
	return nil
}

func (f *faults) transfers(ctx context.Context) error {
	f.said("leaderships change 20 times a second")
	w := newWorker(f.cluster, f.random.Uint64(), 0)
	defer w.close()
	for ctx.Err() == nil {
		// Refused while the node is not a voter or has not caught up.
		w.any().ask("POST", fmt.Sprintf("/v1/cluster/shards/%d/transfer?to=%d", 1+f.random.IntN(3), 1+f.random.IntN(3)), "")
		wait(ctx, 50*time.Millisecond)
	}
	return nil
}
