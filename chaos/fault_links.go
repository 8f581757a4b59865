package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

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
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond+f.randomTime(900*time.Millisecond))
		err := f.cuts(short, f.between(n))
		cancel()
		if err != nil {
			return err
		}
		wait(ctx, 100*time.Millisecond+f.randomTime(900*time.Millisecond))
	}
	return nil
}

// halfOpen takes a node off the network and restarts it meanwhile. Neither peers nor clients
// receive FIN or RST: their connections lead to a process that no longer exists.
func (f *faults) halfOpen(ctx context.Context) error {
	n := f.leader()
	f.said("node %d vanishes from the network, and is restarted meanwhile", n.number)
	if err := f.cluster.network.detach(n.number); err != nil {
		return err
	}
	wait(ctx, f.randomTime(2*time.Second))
	n.kill()
	err := n.start()
	<-ctx.Done()
	return errors.Join(err, f.cluster.network.attach(n.number))
}

// relayed lets the connections along pairs of nodes go by way of relays.
func (f *faults) relayed(pairs [][2]*node, use func([]*relay) error) (err error) {
	byTarget := map[*node]*relay{}
	var relays []*relay
	defer func() {
		for _, relay := range relays {
			relay.close()
		}
	}()
	for _, pair := range pairs {
		if byTarget[pair[1]] == nil {
			relay, err := newRelay(f.cluster.endpoint(pair[1].number, 2))
			if err != nil {
				return err
			}
			byTarget[pair[1]] = relay
			relays = append(relays, relay)
		}
	}
	for _, pair := range pairs {
		if err := f.cluster.network.divert(pair[0].number, pair[1].number); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, f.cluster.network.undivert(pair[0].number, pair[1].number))
		}()
	}
	return use(relays)
}

// slowLink lets all links of a node carry one byte a second, from a random time on.
func (f *faults) slowLink(ctx context.Context) error {
	n := f.leader()
	f.said("the links of node %d carry one byte a second", n.number)
	return f.relayed(f.between(n), func(relays []*relay) error {
		// After a random time, so that connections become slow in the handshake or later.
		wait(ctx, f.randomTime(2*time.Second))
		for _, relay := range relays {
			relay.isSlow.Store(true)
		}
		<-ctx.Done()
		return nil
	})
}

// replayBytes records what a node sends to another one, from the first byte of a connection on, and
// sends it to both again. They must end such connections.
func (f *faults) replayBytes(context.Context) error {
	from := f.leader()
	to := f.other(from)
	var recorded [][]byte
	err := f.relayed([][2]*node{{from, to}, {to, from}}, func(relays []*relay) error {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			recorded = nil
			for _, relay := range relays {
				recorded = append(recorded, relay.recordings(4<<10)...)
			}
			if len(recorded) > 0 && f.random.IntN(20) == 0 {
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(recorded) == 0 {
		return errors.New("no connection between two nodes was made by way of the relay")
	}
	for i, bytes := range recorded {
		for _, n := range []*node{to, from} {
			f.said("%d recorded bytes are sent to node %d again", len(bytes), n.number)
			if err := f.replay(n, bytes); err != nil {
				return err
			}
		}
		if i == 3 {
			break
		}
	}
	return nil
}

// replay sends bytes to the port for other nodes, which must end the connection.
func (f *faults) replay(n *node, bytes []byte) error {
	connection, err := net.DialTimeout("tcp4", f.cluster.endpoint(n.number, 2), requestTimeout)
	if err != nil {
		return nil // The node is down; there is nothing to check.
	}
	defer connection.Close()
	const limit = 20 * time.Second
	_ = connection.SetDeadline(time.Now().Add(limit))
	// The node may end the connection before it has everything.
	_, _ = connection.Write(bytes)
	if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
		return violated("node %d keeps a connection of recorded bytes open for %v", n.number, limit)
	}
	return nil
}
