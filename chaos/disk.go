package main

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"
)

//go:embed preload
var preloadSources embed.FS

// control is what a node's disk and clocks are to do; the same fields are in preload/preload.h.
type control struct {
	clockOffsetNs, clockRatePermille, syncDelayMs, syncErrno, writeErrno, isLying int64
}

// disk is the faulty disk of one node.
type disk struct {
	library, directory, data string
	control                  *control
}

// buildPreload compiles the library that stands between a node, its files and its clocks.
func buildPreload(directory string) (string, error) {
	library := filepath.Join(directory, "preload.so")
	if err := os.CopyFS(filepath.Join(directory, "sources"), preloadSources); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(directory, "sources", "preload", "*.c"))
	if err != nil {
		return "", err
	}
	flags := append([]string{"-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library}, sources...)
	output, err := exec.Command("cc", append(flags, "-ldl", "-lpthread")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, output)
	}
	return library, nil
}

// newDisk makes a disk without faults for the files below `data`.
func newDisk(library, directory, data string) (*disk, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(directory, "control"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int(unsafe.Sizeof(control{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	made := &disk{library, directory, data, (*control)(unsafe.Pointer(&mapped[0]))}
	set(&made.control.clockRatePermille, 1000)
	return made, nil
}

func (d *disk) environment() []string {
	return []string{"LD_PRELOAD=" + d.library, "CHAOS_DISK=" + d.directory, "CHAOS_DATA=" + d.data}
}

func set(field *int64, value int64) { atomic.StoreInt64(field, value) }

// heal ends all faults of the files.
func (d *disk) heal() {
	for _, field := range []*int64{&d.control.syncDelayMs, &d.control.syncErrno, &d.control.writeErrno, &d.control.isLying} {
		set(field, 0)
	}
}

// write is a write that a file may lose: what it has replaced, and the size of the file before.
type write struct {
	position, inode, offset, size uint64
	replaced                      []byte
}

// prepare ends the undo file behind its last whole record: a node that was killed may have written
// a part of one. If everything was synced, it empties the file.
func (d *disk) prepare() error {
	unsynced, end, err := d.unsynced()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(unsynced) == 0 {
		end = 0
	}
	return os.Truncate(filepath.Join(d.directory, "undo"), int64(end))
}

// losePower takes back the writes that were not synced, but the first `kept` of them. The node must
// not run. Returns how many could be lost.
func (d *disk) losePower(kept func(unsynced int) int) (int, error) {
	unsynced, _, err := d.unsynced()
	if err != nil {
		return 0, err
	}
	files, err := filesByInode(d.data)
	if err != nil {
		return 0, err
	}
	keep := kept(len(unsynced))
	for i := len(unsynced) - 1; i >= keep; i-- {
		lost := unsynced[i]
		path, exists := files[lost.inode]
		if !exists {
			continue
		}
		if err := takeBack(path, lost); err != nil {
			return 0, err
		}
	}
	return len(unsynced), os.Truncate(filepath.Join(d.directory, "undo"), 0)
}

// unsynced reads the writes that no sync has followed, in their order, and where the last whole
// record ends.
func (d *disk) unsynced() ([]write, uint64, error) {
	content, err := os.ReadFile(filepath.Join(d.directory, "undo"))
	if err != nil {
		return nil, 0, err
	}
	var writes []write
	synced := map[uint64]uint64{}
	position := uint64(0)
	for {
		var record struct{ Kind, Inode, Offset, Replaced, Size uint64 }
		head, err := binary.Decode(content[position:], binary.NativeEndian, &record)
		if err != nil || uint64(len(content)) < position+uint64(head)+record.Replaced {
			// The node was killed while it wrote the record, so before the write itself.
			break
		}
		end := position + uint64(head) + record.Replaced
		replaced := content[position+uint64(head) : end]
		if record.Kind == 2 {
			synced[record.Inode] = record.Offset
		} else {
			writes = append(writes, write{position, record.Inode, record.Offset, record.Size, replaced})
		}
		position = end
	}
	var unsynced []write
	for _, w := range writes {
		if w.position >= synced[w.inode] {
			unsynced = append(unsynced, w)
		}
	}
	return unsynced, position, nil
}

func filesByInode(directory string) (map[uint64]string, error) {
	files := map[uint64]string{}
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			files[info.Sys().(*syscall.Stat_t).Ino] = path
		}
		return err
	})
	return files, err
}

func takeBack(path string, lost write) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(lost.replaced, int64(lost.offset)); err != nil {
		return err
	}
	if info, err := file.Stat(); err != nil || uint64(info.Size()) <= lost.size {
		return err
	}
	return file.Truncate(int64(lost.size))
}
