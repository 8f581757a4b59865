package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// limitDescriptors sets how many files a process may have open, and returns the former limit. Zero
// only asks.
func limitDescriptors(pid int, limit uint64) (uint64, error) {
	var former syscall.Rlimit
	_, _, failed := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, 0,
		uintptr(unsafe.Pointer(&former)), 0, 0)
	if failed != 0 {
		return 0, failed
	}
	if limit == 0 {
		return former.Cur, nil
	}
	next := syscall.Rlimit{Cur: limit, Max: former.Max}
	_, _, failed = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(&next)), 0, 0, 0)
	if failed != 0 {
		return 0, failed
	}
	return former.Cur, nil
}

// openDescriptors counts the open files of a process.
func openDescriptors(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// noDescriptors lowers the limit of open files of a node below what it has open, so that it can
// open none. It must stay up, and serve when the limit is as it was.
func (f *faults) noDescriptors(ctx context.Context) error {
	n := f.some()
	pid := n.pid()
	open, err := openDescriptors(pid)
	if err != nil {
		return ignoreEnded(n, pid, err)
	}
	lower := uint64(max(1, open-1-f.random.IntN(open)))
	former, err := limitDescriptors(pid, lower)
	if err != nil {
		return ignoreEnded(n, pid, err)
	}
	f.said("node %d has %d files open, and may have %d", n.number, open, lower)
	<-ctx.Done()
	_, err = limitDescriptors(pid, former)
	return ignoreEnded(n, pid, err)
}

// ignoreEnded drops an error of a process that another fault has ended meanwhile.
func ignoreEnded(n *node, pid int, err error) error {
	if pid == 0 || n.pid() != pid {
		return nil
	}
	return err
}

// open connects to a node, with a small receive buffer. It sends nothing.
func (f *faults) open(n *node, which int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	connection, err := f.cluster.dial(ctx, "tcp", f.cluster.endpoint(n.number, which))
	if err != nil {
		return nil, err
	}
	plain := connection
	if secure, isSecure := connection.(*tls.Conn); isSecure {
		plain = secure.NetConn()
	}
	_ = plain.(*net.TCPConn).SetReadBuffer(4 << 10)
	// A node that accepts no more requests of an unread connection has done what is tested.
	_ = connection.SetWriteDeadline(time.Now().Add(requestTimeout))
	return connection, nil
}

// httpHead is the head of a request without a body.
func (f *faults) httpHead(n *node, path string) string {
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, f.cluster.endpoint(n.number, 0))
	if f.cluster.security != nil {
		head += "Authorization: Bearer " + f.cluster.security.bearer() + "\r\n"
	}
	return head + "\r\n"
}

// authentication is the command that a Redis client begins with.
func (f *faults) authentication() string {
	if f.cluster.security == nil {
		return ""
	}
	token := f.cluster.security.bearer()
	return fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(token), token)
}

const (
	unreadKeys       = 4
	unreadValueBytes = 1 << 20
	unreadClients    = 24 // of each protocol
	unreadRequests   = 16 // of each client
	unreadWatchers   = 300
)

// unreadReplies lets clients of a node ask for large replies and not read them. What that takes
// must stay within the limit for clients, and be free again when they are gone.
func (f *faults) unreadReplies(ctx context.Context) error {
	n := f.some()
	f.said("%d clients ask node %d for %d MiB and do not read", 2*unreadClients, n.number,
		2*unreadClients*unreadRequests*unreadValueBytes>>20)
	w := newWorker(f.cluster, f.random.Uint64(), 0)
	defer w.close()
	for key := range unreadKeys {
		w.any().ask("PUT", fmt.Sprintf("/v1/keys/unread/%d", key), strings.Repeat("u", unreadValueBytes))
	}
	var connections []net.Conn
	for i := range unreadClients {
		key := fmt.Sprintf("unread/%d", i%unreadKeys)
		paths := []string{"/v1/keys/" + key, "/v1/keys?prefix=unread/"}
		get := fmt.Sprintf("*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
		for which, requests := range []string{
			strings.Repeat(f.httpHead(n, paths[i%2]), unreadRequests), f.authentication() + strings.Repeat(get, unreadRequests),
		} {
			if connection, err := f.open(n, which); err == nil {
				_, _ = connection.Write([]byte(requests))
				connections = append(connections, connection)
			}
		}
	}
	return f.judgeUnread(ctx, n, connections)
}

// unreadWatches lets hundreds of clients of a node watch keys that change, and not read the
// changes.
func (f *faults) unreadWatches(ctx context.Context) error {
	n := f.some()
	f.said("%d clients watch keys at node %d and do not read", unreadWatchers, n.number)
	var connections []net.Conn
	for range unreadWatchers {
		if connection, err := f.open(n, 0); err == nil {
			_, _ = connection.Write([]byte(f.httpHead(n, "/v1/watch?prefix=unread/")))
			connections = append(connections, connection)
		}
		if ctx.Err() != nil {
			break
		}
	}
	writing, stop := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		w := newWorker(f.cluster, f.random.Uint64(), 0)
		defer w.close()
		for key := 0; writing.Err() == nil; key++ {
			w.any().ask("PUT", fmt.Sprintf("/v1/keys/unread/%d", key%unreadKeys), strings.Repeat("w", 64<<10))
			wait(writing, 20*time.Millisecond)
		}
	}()
	err := f.judgeUnread(ctx, n, connections)
	stop()
	<-written
	return err
}

// judgeUnread watches how much memory clients take until the context ends, closes the connections,
// and waits until most of it is free.
func (f *faults) judgeUnread(ctx context.Context, n *node, connections []net.Conn) error {
	defer func() {
		for _, connection := range connections {
			connection.Close()
		}
	}()
	c := f.cluster.client(n.number)
	defer c.close()
	var most, limit float64
	// On a busy machine the fault may be over before the node has been asked once.
	for last := time.Now().Add(time.Minute); ctx.Err() == nil || limit == 0 && time.Now().Before(last); {
		if used, bound, known := clientMemory(c); known {
			most, limit = max(most, used), bound
			if used > bound {
				return violated("clients take %.0f bytes of the memory of node %d, more than its limit of %.0f", used, n.number, bound)
			}
		}
		wait(ctx, 200*time.Millisecond)
	}
	f.said("clients took at most %.0f MiB of %.0f", most/(1<<20), limit/(1<<20))
	for _, connection := range connections {
		connection.Close()
	}
	var used float64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now, bound, known := clientMemory(c)
		// A process that was restarted meanwhile holds nothing of these clients.
		if used = now; known && used < bound/4 {
			return nil
		}
	}
	return violated("clients are gone, and still take %.0f bytes of the memory of node %d after a minute", used, n.number)
}

// clientMemory is how much memory clients of a node take, and may take.
func clientMemory(c *client) (used, limit float64, known bool) {
	answer := c.ask("GET", "/metrics", "")
	used, err := metric(answer, "tidelock_client_memory_bytes")
	limit, other := metric(answer, "tidelock_client_memory_limit_bytes")
	return used, limit, answer.outcome == done && err == nil && other == nil
}

// metric is a number without labels of an answer of /metrics.
func metric(found answer, name string) (float64, error) {
	for lines := bufio.NewScanner(strings.NewReader(string(found.body))); lines.Scan(); {
		if value, isIt := strings.CutPrefix(lines.Text(), name+" "); isIt {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("no metric " + name)
}
