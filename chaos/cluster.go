package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const electionTimeout = 500 * time.Millisecond

// cluster is the nodes of a run, each a process of the shipped binary.
type cluster struct {
	binary, directory, library string
	network                    *network // nil on loopback
	basePort                   int
	mutex                      sync.Mutex
	nodes                      []*node
	unexpected                 []string // ends of processes that nothing explains
}

// node is a process, or one that does not run now.
type node struct {
	cluster *cluster
	number  int // its place in `cluster.nodes` and among addresses, from 1 on
	disk    *disk
	flags   []string
	// How many reasons the process has to end: it is told to, leaves the cluster, or has a disk that fails.
	mayEnd  atomic.Int32
	hasLeft bool

	mutex   sync.Mutex // held while the process is started or ended
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
}

func newCluster(binary, directory string, network *network, basePort int) (*cluster, error) {
	library, err := buildDisk(directory)
	return &cluster{binary: binary, directory: directory, library: library, network: network, basePort: basePort}, err
}

// endpoint is host and port of an interface of a node: 0 for HTTP, 1 for the Redis protocol, 2 for other nodes.
func (c *cluster) endpoint(number, which int) string {
	if c.network == nil {
		return fmt.Sprintf("127.0.0.1:%d", c.basePort+3*number+which)
	}
	return net.JoinHostPort(address(number), []string{"8001", "7001", "9001"}[which])
}

// found starts the first nodes of the cluster.
func (c *cluster) found(count int) error {
	var peers []string
	for number := 1; number <= count; number++ {
		peers = append(peers, c.endpoint(number, 2))
	}
	for range count {
		if _, err := c.add("--peers", strings.Join(peers, ","), "--shards", "3"); err != nil {
			return err
		}
	}
	return nil
}

// add starts another node.
func (c *cluster) add(flags ...string) (*node, error) {
	c.mutex.Lock()
	number := len(c.nodes) + 1
	c.mutex.Unlock()
	if c.network != nil {
		if err := c.network.addNode(number); err != nil {
			return nil, err
		}
	}
	home := filepath.Join(c.directory, fmt.Sprintf("node-%d", number))
	data := filepath.Join(home, "data")
	disk, err := newDisk(c.library, home, data)
	if err != nil {
		return nil, err
	}
	flags = append([]string{"serve", "--data-dir", data, "--http", c.endpoint(number, 0), "--resp", c.endpoint(number, 1),
		"--peer", c.endpoint(number, 2), "--resp-cluster", "off", "--election-timeout-ms", fmt.Sprint(electionTimeout.Milliseconds()),
		"--dead-after-s", "86400", "--insecure", "true"}, flags...)
	n := &node{cluster: c, number: number, disk: disk, flags: flags}
	c.mutex.Lock()
	c.nodes = append(c.nodes, n)
	c.mutex.Unlock()
	return n, n.start()
}

// members are the nodes that were not taken out of the cluster.
func (c *cluster) members() []*node {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var members []*node
	for _, n := range c.nodes {
		if !n.hasLeft {
			members = append(members, n)
		}
	}
	return members
}

// retire ends a node that has left the cluster.
func (c *cluster) retire(n *node) {
	n.kill()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	n.hasLeft = true
}

// cli runs a command of the binary that asks all members.
func (c *cluster) cli(arguments ...string) (string, error) {
	var urls []string
	for _, n := range c.members() {
		urls = append(urls, "http://"+c.endpoint(n.number, 0))
	}
	command := exec.Command(c.binary, arguments...)
	command.Env = append(os.Environ(), "TIDELOCK_URL="+strings.Join(urls, ","), "XDG_CONFIG_HOME=/nonexistent")
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tidelock %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output), err
}

func (n *node) logPath() string {
	return filepath.Join(n.cluster.directory, fmt.Sprintf("node-%d.log", n.number))
}

// start starts the process, if it does not run.
func (n *node) start() error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.isRunning() {
		return nil
	}
	if err := n.disk.prepare(); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	arguments := append(append(append([]string{"env"}, n.disk.environment()...), n.cluster.binary), n.flags...)
	process := exec.Command(arguments[0], arguments[1:]...)
	if n.cluster.network != nil {
		process = n.cluster.network.command(fmt.Sprint(n.number), arguments...)
	}
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.process, n.ended = process, ended
	go func() {
		err := process.Wait()
		if n.mayEnd.Load() == 0 {
			n.cluster.mutex.Lock()
			n.cluster.unexpected = append(n.cluster.unexpected, fmt.Sprintf("node %d ended: %v; see %s", n.number, err, n.logPath()))
			n.cluster.mutex.Unlock()
		}
		close(ended)
	}()
	return nil
}

func (n *node) isRunning() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

func (n *node) signal(signal syscall.Signal) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.isRunning() {
		_ = n.process.Process.Signal(signal)
	}
}

// kill ends the process at once.
func (n *node) kill() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.end(syscall.SIGKILL)
}

// stop asks the process to end, and waits.
func (n *node) stop() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.end(syscall.SIGTERM)
}

// losePower kills the process and takes back what its disk would have lost.
func (n *node) losePower(kept func(unsynced int) int) (int, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.end(syscall.SIGKILL)
	return n.disk.losePower(kept)
}

// end sends a signal that ends the process, and waits. One that does not obey is killed.
func (n *node) end(signal syscall.Signal) {
	if !n.isRunning() {
		return
	}
	n.mayEnd.Add(1)
	defer n.mayEnd.Add(-1)
	_ = n.process.Process.Signal(signal)
	select {
	case <-n.ended:
	case <-time.After(30 * time.Second):
		_ = n.process.Process.Kill()
		<-n.ended
	}
}
