package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// restoredAbove is by how much later versions of a restored cluster are higher, at least.
const restoredAbove = 1 << 40

// backupAndRestore makes a backup under load. A restore into the cluster itself must be refused and
// change nothing, which the workloads judge. A restore into a fresh cluster must hold every key
// that was acknowledged before the backup began, with its value and its version.
func (f *faults) backupAndRestore(ctx context.Context) error {
	before := f.durability.snapshot()
	file := filepath.Join(f.cluster.directory, fmt.Sprintf("backup-%d", unique()))
	defer os.Remove(file)
	// Refused while slots move.
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, err = f.cluster.cli("backup", "save", "--out", file); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if _, err := f.cluster.cli("backup", "verify", file); err != nil {
		return violated("a backup that was saved is not intact: %v", err)
	}
	for _, flags := range [][]string{nil, {"--discard"}} {
		output, err := f.cluster.cli(append([]string{"backup", "restore", file}, flags...)...)
		if err == nil {
			return violated("a restore into a cluster with clients is not refused: %s", output)
		}
		if !strings.Contains(err.Error(), "the cluster has been written to") {
			return violated("a restore into a cluster with clients should say that the cluster has been written to: %v", err)
		}
	}
	f.said("a backup with %d acknowledged keys is refused by this cluster, and restored into another", len(before))
	return f.restoreElsewhere(file, before)
}

// restoreElsewhere restores a backup into a fresh cluster of one node, and compares it.
func (f *faults) restoreElsewhere(file string, acknowledged []string) error {
	home := filepath.Join(f.cluster.directory, fmt.Sprintf("restored-%d", unique()))
	defer os.RemoveAll(home)
	// Without TLS, and in the network namespace of this process.
	fresh := &cluster{binary: f.cluster.binary, directory: home, basePort: f.cluster.basePort}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	log, err := os.Create(home + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(fresh.binary, append([]string{"serve", "--data-dir", home + "/data", "--shards", "2"},
		fresh.serveFlags(spareNumber)...)...)
	process.Stdout, process.Stderr = log, log
	if err := startChild(process); err != nil {
		return err
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	c := fresh.client(spareNumber)
	defer c.close()
	restore := exec.Command(fresh.binary, "backup", "restore", file)
	restore.Env = append(os.Environ(), "TIDELOCK_URL="+c.base, "XDG_CONFIG_HOME=/nonexistent")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if c.ask("GET", "/readyz", "").status == 200 {
			break
		}
		if time.Now().After(deadline) {
			return violated("a fresh cluster does not serve within a minute; see %s.log", home)
		}
	}
	if output, err := restore.CombinedOutput(); err != nil {
		return violated("a backup cannot be restored into a fresh cluster: %v: %s", err, output)
	}
	return f.compareRestored(c, acknowledged)
}

func (f *faults) compareRestored(c *client, acknowledged []string) error {
	restored, err := createdKeys(func(path string) (answer, error) {
		found := c.ask("GET", path, "")
		if found.outcome != done {
			return found, fmt.Errorf("the restored cluster answers %d %s", found.status, found.body)
		}
		return found, nil
	})
	if err != nil {
		return err
	}
	w := newWorker(f.cluster, 0, 0)
	defer w.close()
	original, err := createdKeys(w.page)
	if err != nil {
		return err
	}
	highest := uint64(0)
	for _, item := range restored {
		highest = max(highest, item.Ver)
	}
	for _, key := range acknowledged {
		if restored[key] != original[key] || !restored[key].isWhole() {
			return violated("%s was acknowledged before the backup began. Its version is %d, in the restored cluster %d",
				key, original[key].Ver, restored[key].Ver)
		}
	}
	written := c.ask("PUT", "/v1/keys/after-restore", "x")
	version, err := strconv.ParseUint(strings.Trim(written.version, `"`), 10, 64)
	if written.outcome != done || err != nil {
		return errors.Join(err, fmt.Errorf("the restored cluster answers a write with %d %s", written.status, written.body))
	}
	if version < highest+restoredAbove {
		return violated("a write after a restore gets version %d, and %d was restored", version, highest)
	}
	return nil
}
