package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// join starts a node that joins by way of a member, and waits until it serves.
func (f *faults) join(by *node) (*node, error) {
	joined, err := f.cluster.add("--join", f.cluster.endpoint(by.number, 2))
	if err != nil {
		return nil, err
	}
	return joined, f.untilServing(joined)
}

// hostNumber is the number of a node in the cluster. It waits until the node has registered.
func (f *faults) hostNumber(n *node) (number int, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var found view
		if found, err = f.view(); err != nil {
			continue
		}
		if number, err = found.host(n); err == nil {
			return number, nil
		}
	}
	return 0, err
}

// replaceMember lets another node join, and removes a member for good.
func (f *faults) replaceMember(context.Context) error {
	leaving := f.some()
	joined, err := f.join(f.other(leaving))
	if err != nil {
		return err
	}
	f.said("node %d joins and node %d leaves", joined.number, leaving.number)
	number, err := f.hostNumber(leaving)
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

// removeUnreachableLeader removes a leader that the others do not reach. When it reaches them
// again it must stop, with exit code 0, and its directory must not start again.
func (f *faults) removeUnreachableLeader(context.Context) error {
	leaving := f.leader()
	joined, err := f.join(f.other(leaving))
	if err != nil {
		return err
	}
	number, err := f.hostNumber(leaving)
	if err != nil {
		return err
	}
	leaving.mayEnd.Add(1)
	f.said("node %d joins; node %d is cut off from the others, and removed", joined.number, leaving.number)
	unreachable, reach := context.WithCancel(context.Background())
	defer reach()
	ended := make(chan error, 1)
	go func() {
		if f.cluster.network == nil {
			ended <- f.pause(unreachable, leaving)
		} else {
			ended <- f.cuts(unreachable, f.between(leaving))
		}
	}()
	f.cluster.leave(leaving)
	_, err = f.cluster.cli("cluster", "remove", fmt.Sprint(number), "--wait-s", "60")
	reach()
	if cutting := <-ended; err == nil {
		err = cutting
	}
	if err != nil {
		return err
	}
	const promised = "this node was removed from the cluster"
	stopped := leaving.awaitEnd(30 * time.Second)
	if !stopped.hasEnded || stopped.code != 0 || !strings.Contains(stopped.log, promised) {
		leaving.kill()
		return violated("node %d was removed while it was cut off, and %v; it should end with 0 and say %q", leaving.number,
			stopped, promised)
	}
	if again := leaving.tryStart(30 * time.Second); !again.hasEnded {
		leaving.kill()
		return violated("node %d was removed, and its directory starts again", leaving.number)
	}
	return nil
}

// slotMoves moves ranges of slots to other shards, one after the other.
func (f *faults) slotMoves(ctx context.Context) error {
	w := newWorker(f.cluster, f.random.Uint64(), 0)
	defer w.close()
	for ctx.Err() == nil {
		if found, err := f.view(); err == nil {
			shards := found.dataShards()
			first := f.random.IntN(16_000)
			last, shard := first+f.random.IntN(384), shards[f.random.IntN(len(shards))]
			f.said("slots %d-%d move to shard %d", first, last, shard)
			// Refused while some of them are moving.
			w.any().ask("POST", fmt.Sprintf("/v1/cluster/shards/%d/slots", shard), fmt.Sprintf(`{"slots":"%d-%d"}`, first, last))
		}
		wait(ctx, 200*time.Millisecond)
	}
	return nil
}

// transfers moves leaderships between the hosts, 20 times a second.
func (f *faults) transfers(ctx context.Context) error {
	f.said("leaderships change 20 times a second")
	w := newWorker(f.cluster, f.random.Uint64(), 0)
	defer w.close()
	var found view
	for beat := 0; ctx.Err() == nil; beat++ {
		// Hosts change seldom, so once a second is enough.
		if beat%20 == 0 {
			if seen, err := f.view(); err == nil {
				found = seen
			}
		}
		shards := found.dataShards()
		if len(shards) > 0 && len(found.Hosts) > 0 {
			to := found.Hosts[f.random.IntN(len(found.Hosts))].Node
			// Refused while the host is not a voter or has not caught up.
			w.any().ask("POST", fmt.Sprintf("/v1/cluster/shards/%d/transfer?to=%d", shards[f.random.IntN(len(shards))], to), "")
		}
		wait(ctx, 50*time.Millisecond)
	}
	return nil
}

// leave takes a node out of the members, while its process continues.
func (c *cluster) leave(n *node) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	n.hasLeft = true
}

// retire ends a node that has left the cluster.
func (c *cluster) retire(n *node) {
	n.signal(syscall.SIGCONT)
	n.kill()
	c.leave(n)
}
