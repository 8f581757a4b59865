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

const (
	electionTimeout = 500 * time.Millisecond
	// Small enough for clients that do not read their replies to reach it.
	memoryLimit = "128MiB"
)

// cluster is the nodes of a run, each a process of the shipped binary.
type cluster struct {
	binary, directory, library string
	network                    *network  // nil on loopback
	security                   *security // nil without TLS
	basePort                   int
	clocks                     wrongClocks
	mutex                      sync.Mutex
	nodes                      []*node
	unexpected                 []string // ends of processes that nothing explains
}

// wrongClocks is when the clocks of nodes ran at wrong rates.
type wrongClocks struct {
	isWrong atomic.Bool
	until   atomic.Int64 // the last time, in nanoseconds since 1970
}

func (w *wrongClocks) begin() { w.isWrong.Store(true) }

func (w *wrongClocks) end() {
	w.until.Store(time.Now().UnixNano())
	w.isWrong.Store(false)
}

// since says whether clocks ran at wrong rates at any time after this one.
func (w *wrongClocks) since(start time.Time) bool {
	return w.isWrong.Load() || w.until.Load() >= start.UnixNano()
}

func newCluster(s *settings, directory string, network *network) (*cluster, error) {
	binary, err := filepath.Abs(s.binary)
	if err != nil {
		return nil, err
	}
	library, err := buildPreload(directory)
	if err != nil {
		return nil, err
	}
	c := &cluster{binary: binary, directory: directory, library: library, network: network, basePort: s.port}
	if s.secure {
		c.security, err = newSecurity(directory)
	}
	return c, err
}

// spareNumber is the number of a place for one process that is not a node of the cluster.
const spareNumber = 0

// endpoint is host and port of an interface of a node: 0 for HTTP, 1 for the Redis protocol, 2 for
// other nodes.
func (c *cluster) endpoint(number, which int) string {
	if c.network == nil {
		return fmt.Sprintf("127.0.0.1:%d", c.basePort+3*number+which)
	}
	return net.JoinHostPort(address(number), []string{"8001", "7001", "9001"}[which])
}

// startFounders starts the first nodes of the cluster.
func (c *cluster) startFounders(count int) error {
	var peers []string
	for number := 1; number <= count; number++ {
		peers = append(peers, c.endpoint(number, 2))
	}
	for range count {
		if _, err := c.add("--peers", strings.Join(peers, ","), "--shards", "3"); err != nil {
			return err
		}
	}
	if c.security == nil {
		return nil
	}
	return c.requireTokens()
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
	n, err := newNode(c, number, home, append(c.serveFlags(number), flags...))
	if err != nil {
		return nil, err
	}
	if c.security != nil {
		host, _, err := net.SplitHostPort(c.endpoint(number, 0))
		if err != nil {
			return nil, err
		}
		if err := c.security.addHost(number, host, n.tlsDirectory()); err != nil {
			return nil, err
		}
	}
	c.mutex.Lock()
	c.nodes = append(c.nodes, n)
	c.mutex.Unlock()
	return n, n.start()
}

// serveFlags are the flags of `tidelock serve` that all nodes have.
func (c *cluster) serveFlags(number int) []string {
	flags := []string{"--http", c.endpoint(number, 0), "--resp", c.endpoint(number, 1), "--peer", c.endpoint(number, 2),
		"--resp-cluster", "off", "--election-timeout-ms", fmt.Sprint(electionTimeout.Milliseconds()),
		"--dead-after-s", "86400", "--memory-limit", memoryLimit}
	if c.security == nil {
		flags = append(flags, "--insecure", "true")
	}
	return flags
}

// requireTokens makes an administrator, and lets the nodes serve only clients with a token. Until
// then a node with TLS serves only clients on its own machine, so this runs there.
func (c *cluster) requireTokens() error {
	first := c.members()[0]
	for _, step := range [][]string{
		{"auth", "principal", "put", "root", "--role", "admin"},
		{"auth", "token", "create", "root", "--out", c.security.tokenFile()},
		{"auth", "require", "--token-file", c.security.tokenFile()},
	} {
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
			command := exec.Command(c.binary, step...)
			if c.network != nil {
				command = c.network.command(fmt.Sprint(first.number), append([]string{c.binary}, step...)...)
			}
			// Before the first token there is none to send.
			command.Env = append(os.Environ(), "TIDELOCK_URL=https://"+c.endpoint(first.number, 0),
				"TIDELOCK_CA="+c.security.bundleFile(), "XDG_CONFIG_HOME=/nonexistent")
			var output []byte
			if output, err = command.CombinedOutput(); err == nil {
				break
			}
			err = fmt.Errorf("tidelock %s: %w\n%s", strings.Join(step, " "), err, output)
			// The file of an attempt whose answer was lost; a token of it that exists does no harm.
			if step[1] == "token" {
				_ = os.Remove(c.security.tokenFile())
			}
		}
		if err != nil {
			return err
		}
	}
	return c.security.readToken()
}

// members are the nodes that were not removed from the cluster.
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

// killAll ends all processes.
func (c *cluster) killAll() {
	c.mutex.Lock()
	nodes := append([]*node(nil), c.nodes...)
	c.mutex.Unlock()
	for _, n := range nodes {
		n.signal(syscall.SIGCONT)
		n.kill()
	}
}

// cli runs a command of the binary that asks all members.
func (c *cluster) cli(arguments ...string) (string, error) {
	var urls []string
	scheme := "http://"
	environment := append(os.Environ(), "XDG_CONFIG_HOME=/nonexistent")
	if c.security != nil {
		scheme = "https://"
		environment = append(environment, "TIDELOCK_CA="+c.security.bundleFile(), "TIDELOCK_TOKEN_FILE="+c.security.tokenFile())
	}
	for _, n := range c.members() {
		urls = append(urls, scheme+c.endpoint(n.number, 0))
	}
	command := exec.Command(c.binary, arguments...)
	command.Env = append(environment, "TIDELOCK_URL="+strings.Join(urls, ","))
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("tidelock %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output), err
}
