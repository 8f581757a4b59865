package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// network is namespaces, one for each node and one for the clients. Packets between nodes can be
// lost.
type network struct {
	prefix string // of the names of the namespaces
}

const (
	hub           = "hub"
	networkPrefix = "tidelock-chaos-" // the number of the process follows
)

// newNetwork makes the namespace of the clients, with a bridge.
func newNetwork() (*network, error) {
	n := &network{fmt.Sprintf("%s%d", networkPrefix, os.Getpid())}
	err := n.steps(
		func() error { return n.add(hub) },
		func() error { return n.ip(hub, "link add br0 type bridge") },
		func() error { return n.ip(hub, "addr add %s/24 dev br0", address(0)) },
		func() error { return n.ip(hub, "link set br0 up") },
	)
	if err != nil {
		n.remove()
	}
	return n, err
}

// addNode makes the namespace of a node.
func (n *network) addNode(number int) error {
	name := fmt.Sprint(number)
	return n.steps(
		func() error { return n.add(name) },
		func() error { return n.ip(hub, "link add to-%s type veth peer name eth0 netns %s", name, n.full(name)) },
		func() error { return n.ip(hub, "link set to-%s master br0 up", name) },
		func() error { return n.ip(name, "addr add %s/24 dev eth0", address(number)) },
		func() error { return n.ip(name, "link set eth0 up") },
	)
}

func (n *network) steps(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// address of a node inside of its namespace; 0 is that of the clients.
func address(node int) string {
	if node == 0 {
		return "10.91.0.254"
	}
	return fmt.Sprintf("10.91.0.%d", node)
}

func (n *network) full(name string) string { return n.prefix + "-" + name }

func (n *network) add(name string) error {
	if err := runTool("ip", "netns", "add", n.full(name)); err != nil {
		return err
	}
	return n.ip(name, "link set lo up")
}

// ip runs the command of that name in a namespace.
func (n *network) ip(name, format string, values ...any) error {
	words := strings.Fields(fmt.Sprintf(format, values...))
	return runTool("ip", append([]string{"-n", n.full(name)}, words...)...)
}

// command is a command that runs in a namespace.
func (n *network) command(name string, arguments ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + n.full(name), "--"}, arguments...)...)
}

// removeAbandoned removes the namespaces of harnesses that were killed before they could do so.
func removeAbandoned() {
	output, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(output)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		var pid int
		if _, err := fmt.Sscanf(name, networkPrefix+"%d-", &pid); err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, os.ErrNotExist) {
			_ = runTool("ip", "netns", "delete", name)
		}
	}
}

// remove removes all namespaces.
func (n *network) remove() {
	output, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: namespaces are left behind:", err)
	}
	for line := range strings.Lines(string(output)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, n.prefix+"-") {
			continue
		}
		if err := runTool("ip", "netns", "delete", name); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
	}
}

// cut loses what a node sends to another one.
func (n *network) cut(from, to int) error {
	return n.ip(fmt.Sprint(from), "route replace blackhole %s/32", address(to))
}

// join ends a cut. There may be none.
func (n *network) join(from, to int) {
	_ = n.ip(fmt.Sprint(from), "route delete blackhole %s/32", address(to))
}

// detach takes a node off the network: packets to and from it are lost, and nobody is told.
func (n *network) detach(number int) error { return n.ip(hub, "link set to-%d down", number) }

// attach ends that.
func (n *network) attach(number int) error { return n.ip(hub, "link set to-%d up", number) }

// divert lets what a node sends to another one end in the namespace of the clients instead, where a
// relay listens at the address of that other node.
func (n *network) divert(from, to int) error {
	return n.steps(
		func() error {
			return n.ip(hub, "rule add from %s to %s iif br0 lookup %d", address(from), address(to), 100+to)
		},
		func() error { return n.ip(hub, "route replace local %s/32 dev lo table %d", address(to), 100+to) },
		func() error { return n.ip(fmt.Sprint(from), "route replace %s/32 via %s", address(to), address(0)) },
	)
}

// undivert ends that. Connections by way of the relay break.
func (n *network) undivert(from, to int) error {
	return n.steps(
		func() error { return n.ip(fmt.Sprint(from), "route delete %s/32 via %s", address(to), address(0)) },
		func() error {
			return n.ip(hub, "rule delete from %s to %s iif br0 lookup %d", address(from), address(to), 100+to)
		},
	)
}

func runTool(name string, arguments ...string) error {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
