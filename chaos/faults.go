package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// fault is something that happens to a cluster. It begins and ends within inject.
type fault struct {
	name string
	// What it acts on. Two faults at a time act on different things.
	on target
	// inject keeps the fault up until the context ends, unless it is done earlier.
	inject func(f *faults, ctx context.Context) error
	// How long it must last to have its effect.
	least time.Duration
	// What the run must have.
	needs need
	// Whether its outcome is only certain if nothing else fails meanwhile.
	alone bool
}

type target int

const (
	processes target = iota
	links
	disks
	clocks
	resources
	members
	directories
	certificates
)

type need int

const (
	nothing need = iota
	namespaces
	tlsFiles
)

// faults injects one fault into a cluster.
type faults struct {
	cluster    *cluster
	random     *rand.Rand
	durability *durability
	// Prints what happens.
	said func(format string, values ...any)
}

// violation is a promise that was broken. Other errors say that the harness cannot go on.
type violation struct{ text string }

func (v *violation) Error() string { return v.text }

func violated(format string, values ...any) error {
	return &violation{fmt.Sprintf(format, values...)}
}

// onLeader injects a fault into a node that leads a data shard.
func onLeader(inject func(*faults, context.Context, *node) error) func(*faults, context.Context) error {
	return func(f *faults, ctx context.Context) error { return inject(f, ctx, f.leader()) }
}

// onFollower injects a fault into a node other than a leader of one data shard.
func onFollower(inject func(*faults, context.Context, *node) error) func(*faults, context.Context) error {
	return func(f *faults, ctx context.Context) error { return inject(f, ctx, f.other(f.leader())) }
}

var allFaults = []fault{
	{name: "kill-leader", on: processes, inject: onLeader((*faults).killOne)},
	{name: "kill-follower", on: processes, inject: onFollower((*faults).killOne)},
	{name: "kill-all", on: processes, inject: (*faults).killAll},
	{name: "pause-leader", on: processes, inject: onLeader((*faults).pause)},
	{name: "pause-follower", on: processes, inject: onFollower((*faults).pause)},
	{name: "power-loss", on: processes, inject: (*faults).powerLossOfOne},
	{name: "power-loss-of-all", on: processes, inject: (*faults).powerLossOfAll},
	{name: "rolling-restart", on: processes, inject: (*faults).rollingRestart},
	{name: "isolate-leader", on: links, needs: namespaces, inject: onLeader((*faults).isolate)},
	{name: "isolate-follower", on: links, needs: namespaces, inject: onFollower((*faults).isolate)},
	{name: "no-majority", on: links, needs: namespaces, inject: (*faults).noMajority},
	{name: "one-way", on: links, needs: namespaces, inject: (*faults).oneWay},
	{name: "bridge", on: links, needs: namespaces, inject: (*faults).bridge},
	{name: "flapping", on: links, needs: namespaces, inject: (*faults).flapping},
	{name: "half-open", on: links, needs: namespaces, least: 4 * time.Second, inject: (*faults).halfOpen, alone: true},
	{name: "slow-link", on: links, needs: namespaces, least: 4 * time.Second, inject: (*faults).slowLink},
	{name: "replayed-bytes", on: links, needs: namespaces, inject: (*faults).replayBytes, alone: true},
	{name: "slow-disk", on: disks, inject: (*faults).slowDisk},
	{name: "failing-sync", on: disks, inject: failingDisk(func(c *control) *int64 { return &c.syncErrno }, syscall.EIO)},
	{name: "failing-write", on: disks, inject: failingDisk(func(c *control) *int64 { return &c.writeErrno }, syscall.EIO)},
	{name: "full-disk", on: disks, inject: failingDisk(func(c *control) *int64 { return &c.writeErrno }, syscall.ENOSPC)},
	{name: "bit-rot", on: directories, inject: (*faults).bitRot, alone: true},
	{name: "clock-jumps", on: clocks, inject: (*faults).clockJumps},
	{name: "clock-rates", on: clocks, least: 3 * time.Second, inject: (*faults).clockRates},
	{name: "no-descriptors", on: resources, inject: (*faults).noDescriptors},
	{name: "unread-replies", on: resources, least: 2 * time.Second, inject: (*faults).unreadReplies},
	{name: "unread-watches", on: resources, least: 3 * time.Second, inject: (*faults).unreadWatches},
	{name: "replaced-member", on: members, inject: (*faults).replaceMember},
	{name: "removed-leader", on: members, inject: (*faults).removeUnreachableLeader, alone: true},
	{name: "slot-moves", on: members, inject: (*faults).slotMoves},
	{name: "transfers", on: members, inject: (*faults).transfers},
	{name: "old-copy", on: directories, inject: (*faults).oldCopy, alone: true},
	{name: "clone", on: directories, inject: (*faults).clone, alone: true},
	{name: "backup-and-restore", on: directories, inject: (*faults).backupAndRestore, alone: true},
	{name: "rotated-certificates", on: certificates, needs: tlsFiles, inject: (*faults).rotateCertificates},
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

// leader is a node that leads a data shard, or any node if no leader is known.
func (f *faults) leader() *node {
	if found, err := f.view(); err == nil {
		if leading := found.leaders(f.cluster.members()); len(leading) > 0 {
			return leading[f.random.IntN(len(leading))]
		}
	}
	return f.some()
}

// wait lasts for a time, or until the context ends.
func wait(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

// randomTime is at most `limit`.
func (f *faults) randomTime(limit time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(limit)))
}

func names(nodes []*node) string {
	var numbers []string
	for _, n := range nodes {
		numbers = append(numbers, fmt.Sprintf("node %d", n.number))
	}
	return strings.Join(numbers, ", ")
}

// untilServing waits until a node answers a linearizable read.
func (f *faults) untilServing(n *node) error {
	w := newWorker(f.cluster, 0, 0)
	defer w.close()
	return w.until(fmt.Sprintf("node %d serves", n.number), func(*client) bool {
		return w.of(n).ask("GET", "/v1/keys/none", "").status == 404
	})
}

// startAll starts the nodes that do not run.
func (f *faults) startAll(nodes []*node) error {
	for _, n := range nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}
