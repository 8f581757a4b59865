package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is a process of the binary, or one that does not run now.
type node struct {
	cluster *cluster
	number  int // its place in `cluster.nodes` and among addresses, from 1 on
	home    string
	disk    *disk
	flags   []string
	// How many reasons the process has to end: it is told to, leaves the cluster, has a disk that
	// fails, or a directory that must be refused.
	mayEnd  atomic.Int32
	hasLeft bool // guarded by the cluster's mutex

	mutex     sync.Mutex // held while the process is started or ended
	process   *exec.Cmd
	ended     chan struct{} // closed when the process has ended
	startedAt time.Time
	logBefore int64 // bytes that the log had when the process was started
}

// newNode is a node with an empty data directory, which does not run.
func newNode(c *cluster, number int, home string, flags []string) (*node, error) {
	n := &node{cluster: c, number: number, home: home}
	disk, err := newDisk(c.library, home, n.data())
	if err != nil {
		return nil, err
	}
	n.disk = disk
	n.flags = append([]string{"serve", "--data-dir", n.data()}, flags...)
	if c.security != nil {
		n.flags = append(n.flags, "--tls-dir", n.tlsDirectory())
	}
	return n, nil
}

func (n *node) data() string         { return filepath.Join(n.home, "data") }
func (n *node) logPath() string      { return n.home + ".log" }
func (n *node) tlsDirectory() string { return filepath.Join(n.home, "tls") }

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
	if info, err := log.Stat(); err == nil {
		n.logBefore = info.Size()
	}
	arguments := append(append(append([]string{"env"}, n.disk.environment()...), n.cluster.binary), n.flags...)
	process := exec.Command(arguments[0], arguments[1:]...)
	if n.cluster.network != nil {
		process = n.cluster.network.command(fmt.Sprint(n.number), arguments...)
	}
	process.Stdout, process.Stderr = log, log
	if err := startChild(process); err != nil {
		return err
	}
	ended := make(chan struct{})
	n.process, n.ended, n.startedAt = process, ended, time.Now()
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

// pid is the number of the process, or 0 if it does not run.
func (n *node) pid() int {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if !n.isRunning() {
		return 0
	}
	return n.process.Process.Pid
}

// age is how long the process has been running.
func (n *node) age() time.Duration {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return time.Since(n.startedAt)
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

// ending is how a process ended, if it did.
type ending struct {
	hasEnded bool
	code     int
	log      string // what the process logged since its start
}

func (e ending) String() string {
	if !e.hasEnded {
		return "its process runs on"
	}
	last := e.log[max(0, len(e.log)-600):]
	return fmt.Sprintf("its process ended with exit code %d after logging …%s", e.code, last)
}

// awaitEnd waits for the process to end by itself.
func (n *node) awaitEnd(limit time.Duration) ending {
	n.mutex.Lock()
	ended, process, before := n.ended, n.process, n.logBefore
	n.mutex.Unlock()
	select {
	case <-ended:
		return ending{true, process.ProcessState.ExitCode(), n.logSince(before)}
	case <-time.After(limit):
		return ending{log: n.logSince(before)}
	}
}

// tryStart starts a process that should end by itself, and waits for that.
func (n *node) tryStart(limit time.Duration) ending {
	n.mayEnd.Add(1)
	defer n.mayEnd.Add(-1)
	if err := n.start(); err != nil {
		return ending{true, -1, err.Error()}
	}
	return n.awaitEnd(limit)
}

// logSince is the log after so many bytes.
func (n *node) logSince(before int64) string {
	content, err := os.ReadFile(n.logPath())
	if err != nil || int64(len(content)) < before {
		return ""
	}
	return string(content[before:])
}
