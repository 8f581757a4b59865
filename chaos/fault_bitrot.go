package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// rottable is a kind of file of a node.
type rottable struct {
	name, pattern string
	// What the log may say instead of the name of the file. Without its newest record, the count of
	// starts is that of an earlier state, so peers refuse the directory as an old copy.
	alsoSays string
}

func rottables(n *node) []rottable {
	kinds := []rottable{
		{"control file", filepath.Join(n.data(), "control"), ""},
		{"count of starts", filepath.Join(n.data(), "starts"), "put back to an earlier state"},
		{"segment of the log", filepath.Join(n.data(), "wal-[0-9]*.log"), ""},
		{"snapshot", filepath.Join(n.data(), "snapshot-*[0-9]"), ""},
	}
	if n.cluster.security != nil {
		for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
			kinds = append(kinds, rottable{name, filepath.Join(n.tlsDirectory(), name), ""})
		}
	}
	return kinds
}

// bitRot changes a byte of each kind of file of a node that is stopped. The node must refuse to
// start and name the file, or repair itself and serve. With the file as it was it must serve.
func (f *faults) bitRot(context.Context) error {
	n := f.some()
	if err := f.makeSnapshots(n); err != nil {
		return err
	}
	kinds := rottables(n)
	f.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var broken error
	for _, kind := range kinds {
		n.stop()
		if err := f.rot(n, kind); err != nil {
			var promise *violation
			if !errors.As(err, &promise) {
				return err
			}
			broken = errors.Join(broken, err)
		}
		if err := n.start(); err != nil {
			return err
		}
		if err := f.untilServing(n); err != nil {
			return errors.Join(broken, violated("node %d does not serve after its %s is as it was: %v", n.number, kind.name, err))
		}
	}
	return broken
}

// makeSnapshots waits until a node has a snapshot.
func (f *faults) makeSnapshots(n *node) error {
	w := newWorker(f.cluster, 0, 0)
	defer w.close()
	return w.until(fmt.Sprintf("node %d makes a snapshot", n.number), func(*client) bool {
		found, err := filepath.Glob(filepath.Join(n.data(), "snapshot-*[0-9]"))
		if err == nil && len(found) > 0 {
			return true
		}
		w.of(n).ask("POST", "/v1/snapshots", "")
		return false
	})
}

// rot changes a byte of a file and starts the node. If the node does not serve, it puts the file
// back.
func (f *faults) rot(n *node, kind rottable) error {
	files, err := filepath.Glob(kind.pattern)
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("node %d has no %s", n.number, kind.name))
	}
	path, control := files[f.random.IntN(len(files))], filepath.Join(n.data(), "control")
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	controlBefore, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	offset := kind.rotOffset(f.random, before)
	rotten := before[offset] ^ 1<<f.random.IntN(8)
	if err := changeByte(path, offset, rotten); err != nil {
		return err
	}
	result, serves := f.endsOrServes(n)
	f.said("byte %d of %s of node %d changes from %#x to %#x, and it serves: %t", offset, filepath.Base(path), n.number,
		before[offset], rotten, serves)
	if serves {
		// The node does not repair TLS files, but may use them as they are.
		if filepath.Dir(path) == n.tlsDirectory() {
			return changeByte(path, offset, before[offset])
		}
		return nil
	}
	n.kill()
	broken := kind.judge(path, result)
	if kind.alsoSays != "" {
		// The start was counted, and the directory was marked as an old copy.
		return errors.Join(broken, replaceFile(path, before), replaceFile(control, controlBefore))
	}
	after, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	isUntouched := after[offset] == rotten
	after[offset] = before[offset]
	if !isUntouched || !bytes.Equal(after, before) {
		broken = errors.Join(broken, violated("node %d has changed %s, which it refuses", n.number, path))
	}
	return errors.Join(broken, changeByte(path, offset, before[offset]))
}

// judge says whether a node that does not serve has refused to start as it should.
func (k rottable) judge(path string, result ending) error {
	isNamed := strings.Contains(result.log, filepath.Base(path)) || k.alsoSays != "" && strings.Contains(result.log, k.alsoSays)
	if result.hasEnded && result.code > 0 && isNamed {
		return nil
	}
	return violated("with a changed byte in %s, the node should refuse to start with the name of the file, or serve, but %v",
		path, result)
}

// endsOrServes starts a node, and waits until it has ended or serves, for a while.
func (f *faults) endsOrServes(n *node) (result ending, serves bool) {
	n.mayEnd.Add(1)
	defer n.mayEnd.Add(-1)
	if err := n.start(); err != nil {
		return ending{true, -1, err.Error()}, false
	}
	c := f.cluster.client(n.number)
	defer c.close()
	for deadline := time.Now().Add(refusalTime); time.Now().Before(deadline); {
		if result = n.awaitEnd(50 * time.Millisecond); result.hasEnded {
			return result, false
		}
		if c.ask("GET", "/v1/keys/none", "").status == 404 {
			return result, true
		}
	}
	return result, false
}

func changeByte(path string, offset int, value byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt([]byte{value}, int64(offset))
	return err
}

// rotOffset chooses the byte to change, among those that a node reads.
func (k rottable) rotOffset(random *rand.Rand, content []byte) int {
	switch {
	case strings.HasSuffix(k.pattern, "starts"):
		// Two records of 24 bytes, each in a sector of 512.
		return 512*random.IntN(2) + random.IntN(24)
	case strings.Contains(k.pattern, "wal-"):
		// The end of a log that was synced last looks like one that was torn, and is cut off.
		end := len(content)
		for end > 1 && content[end-1] == 0 {
			end--
		}
		return random.IntN(max(1, end*4/5))
	default:
		return random.IntN(len(content))
	}
}
