package main

import (
	"errors"
	"fmt"
	"strings"
)

// view is the cluster as one member sees it.
type view struct {
	Hosts []struct {
		Node      int
		HTTP      string `json:"http_address"`
		Connected bool
	}
	Shards []struct {
		ID     int
		Type   string
		Leader *int
	}
}

// view asks the members, beginning with any, until one answers.
func (f *faults) view() (found view, err error) {
	members := f.cluster.members()
	first := f.random.IntN(len(members))
	for i := range members {
		c := f.cluster.client(members[(first+i)%len(members)].number)
		answer := c.ask("GET", "/v1/cluster", "")
		c.close()
		if answer.outcome == done && answer.into(&found) {
			return found, nil
		}
	}
	return found, errors.New("no member shows the cluster")
}

// host is the number by which the cluster knows a node, which is not its place in the harness.
func (v *view) host(n *node) (int, error) {
	for _, host := range v.Hosts {
		if strings.HasSuffix(host.HTTP, n.cluster.endpoint(n.number, 0)) {
			return host.Node, nil
		}
	}
	return 0, fmt.Errorf("no host of the cluster has the address of node %d", n.number)
}

// node is the process of a host.
func (v *view) node(host int, members []*node) *node {
	for _, n := range members {
		if number, err := v.host(n); err == nil && number == host {
			return n
		}
	}
	return nil
}

// dataShards are the numbers of the shards that hold keys.
func (v *view) dataShards() (ids []int) {
	for _, shard := range v.Shards {
		if shard.Type == "kv" {
			ids = append(ids, shard.ID)
		}
	}
	return ids
}

// leaders are the nodes that lead a data shard, one for each such shard.
func (v *view) leaders(members []*node) (leading []*node) {
	for _, shard := range v.Shards {
		if shard.Type == "kv" && shard.Leader != nil {
			if n := v.node(*shard.Leader, members); n != nil {
				leading = append(leading, n)
			}
		}
	}
	return leading
}
