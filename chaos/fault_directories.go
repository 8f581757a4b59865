package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// refusalTime is how long a process may take to notice that its directory must not be used.
const refusalTime = time.Minute

// oldCopy starts a node on a copy of its directory that was made before its last start. The copy
// must be refused, and the node must serve again from its own directory.
func (f *faults) oldCopy(ctx context.Context) error {
	n := f.some()
	n.stop()
	copied, err := f.copyOf(n, fmt.Sprint(n.number), f.cluster.serveFlags(n.number))
	if err != nil {
		return err
	}
	defer copied.discard()
	if err := n.start(); err != nil {
		return err
	}
	if err := f.untilConnected(n); err != nil {
		return err
	}
	wait(ctx, f.randomTime(time.Second))
	n.kill()
	others := f.othersOf(n)
	if f.random.IntN(2) == 0 {
		f.said("an old copy of the directory of node %d is started, after its peers were restarted", n.number)
		for _, other := range others {
			other.kill()
		}
		if err := f.startAll(others); err != nil {
			return err
		}
	} else {
		f.said("an old copy of the directory of node %d is started", n.number)
	}
	if err := f.mustBeRefused(copied, "put back to an earlier state"); err != nil {
		return errors.Join(err, n.start())
	}
	if err := n.start(); err != nil {
		return err
	}
	return f.untilServing(n)
}

// clone starts a second process on a copy of the directory of a node that runs, or ran a moment
// ago. The clone must be refused, and must not disturb the node.
func (f *faults) clone(context.Context) error {
	n := f.some()
	running := f.random.IntN(2) == 0
	if !running {
		n.stop()
	}
	copied, err := f.copyOf(n, fmt.Sprintf("%d-clone", n.number), f.cloneFlags(n))
	if err != nil {
		return err
	}
	defer copied.discard()
	if err := n.start(); err != nil {
		return err
	}
	if err := f.untilConnected(n); err != nil {
		return err
	}
	f.said("a clone of node %d is started, copied while it runs: %t", n.number, running)
	// A copy of a log that is written to may be damaged, and is refused for that.
	if err := f.mustBeRefused(copied, "clone", "another process of the node", "damaged at byte offset"); err != nil {
		return err
	}
	return f.untilServing(n)
}

// cloneFlags are those of a process beside a node, at other ports.
func (f *faults) cloneFlags(n *node) []string {
	flags := f.cluster.serveFlags(spareNumber)
	if f.cluster.network == nil {
		return flags
	}
	for i, flag := range flags {
		for which, port := range []string{"8000", "7000", "9000"} {
			if flag == f.cluster.endpoint(spareNumber, which) {
				flags[i] = net.JoinHostPort(address(n.number), port)
			}
		}
	}
	return flags
}

// needsAPerson is the exit code of a node that must not be started again as it is.
const needsAPerson = 9

// mustBeRefused starts a process, which must end with one of the messages, and with needsAPerson unless its files are damaged.
func (f *faults) mustBeRefused(copied *node, messages ...string) error {
	ended := copied.tryStart(refusalTime)
	copied.kill()
	if ended.hasEnded && (ended.code == needsAPerson || ended.code == 1) {
		for _, message := range messages {
			if strings.Contains(ended.log, message) {
				return nil
			}
		}
	}
	return violated("%s should be refused with exit code %d or 1 and one of %q, but %v",
		filepath.Base(copied.home), needsAPerson, messages, ended)
}

// othersOf are all members but this one.
func (f *faults) othersOf(n *node) (others []*node) {
	for _, other := range f.cluster.members() {
		if other != n {
			others = append(others, other)
		}
	}
	return others
}

// untilConnected waits until a node serves and each other member is connected with it: from then on
// they know the number of its start.
func (f *faults) untilConnected(n *node) error {
	if err := f.untilServing(n); err != nil {
		return err
	}
	number, err := f.hostNumber(n)
	if err != nil {
		return err
	}
	w := newWorker(f.cluster, 0, 0)
	defer w.close()
	return w.until(fmt.Sprintf("all are connected with node %d", n.number), func(*client) bool {
		for _, other := range f.othersOf(n) {
			var found view
			if answer := w.of(other).ask("GET", "/v1/cluster", ""); answer.outcome != done || !answer.into(&found) {
				return false
			}
			for _, host := range found.Hosts {
				if host.Node == number && !host.Connected {
					return false
				}
			}
		}
		return true
	})
}

// copyOf is a process on a copy of the directory of a node, with a disk of its own.
func (f *faults) copyOf(n *node, name string, flags []string) (*node, error) {
	home := filepath.Join(f.cluster.directory, fmt.Sprintf("copy-of-node-%s-%d", name, unique()))
	copied, err := newNode(f.cluster, n.number, home, flags)
	if err != nil {
		return nil, err
	}
	if err := copyDirectory(n.data(), copied.data()); err != nil {
		return nil, err
	}
	if f.cluster.security == nil {
		return copied, nil
	}
	return copied, copyDirectory(n.tlsDirectory(), copied.tlsDirectory())
}

// discard removes the files of a process that has ended, but its log.
func (n *node) discard() {
	n.kill()
	_ = os.RemoveAll(n.home)
}

// copyDirectory copies the files of a directory. Some may be renamed or removed meanwhile.
func copyDirectory(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		err := copyFile(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyFile leaves holes where there are zeros: segments of the log are mostly empty.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	buffer := make([]byte, 64<<10)
	var size int64
	for {
		count, err := source.Read(buffer)
		if errors.Is(err, io.EOF) {
			return target.Truncate(size)
		}
		if err != nil {
			return err
		}
		if strings.Trim(string(buffer[:count]), "\x00") != "" {
			if _, err := target.WriteAt(buffer[:count], size); err != nil {
				return err
			}
		}
		size += int64(count)
	}
}
