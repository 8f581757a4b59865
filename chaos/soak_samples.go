package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nodeMetrics are what is sampled of each node. Anonymous memory is what the process has allocated.
// Resident pages of the program's file are not counted: they become more as more of its code has run
// once. A metric may rise from the second quarter of the run to the last one by a factor, for the
// noise of the machine, and an amount, for what comes and goes.
var nodeMetrics = []struct {
	name, unit string
	factor     float64
	amount     float64
	why        string
}{
	{"anonymous memory", "MiB", 1.15, 16, "snapshots and slots on their way"},
	{"open descriptors", "", 1, 16, "snapshots, peers that join"},
	{"threads", "", 1, 8, "threads that wait for files"},
	{"data directory", "MiB", 1.25, 128, "a segment more, and one that is released later"},
}

// The same for how long clients wait. The machine of the run may be busy with something else.
const (
	latencyFactor   = 2
	latencyAmountMs = 20
)

// nodeSample is one node at one time: the values of nodeMetrics.
type nodeSample struct {
	seconds float64
	node    int
	values  []float64
}

// clientSample is one kind of client in one interval.
type clientSample struct {
	seconds        float64
	kind           int
	done, failed   int
	p50Ms, p99Ms   float64
	hasPercentiles bool
}

// samples are those of a whole run.
type samples struct {
	founders []*node // the nodes that are there from beginning to end
	began    time.Time
	nodes    []nodeSample
	clients  []clientSample
}

func newSamples(founders []*node) *samples {
	return &samples{founders: founders, began: time.Now()}
}

// collect takes samples until the context ends.
func (s *samples) collect(ctx context.Context, load *soakLoad) {
	for {
		wait(ctx, sampleEvery)
		if ctx.Err() != nil {
			return
		}
		seconds := time.Since(s.began).Seconds()
		for _, n := range s.founders {
			if values := sampleNode(n); values != nil {
				s.nodes = append(s.nodes, nodeSample{seconds, n.number, values})
			}
		}
		latencies, failures := load.take()
		for kind, all := range latencies {
			sample := clientSample{seconds: seconds, kind: kind, done: len(all), failed: failures[kind]}
			if len(all) > 0 {
				slices.Sort(all)
				sample.hasPercentiles = true
				sample.p50Ms = all[len(all)/2].Seconds() * 1000
				sample.p99Ms = all[len(all)*99/100].Seconds() * 1000
			}
			s.clients = append(s.clients, sample)
		}
	}
}

// sampleNode returns nil if the process does not run, or was started a moment ago.
func sampleNode(n *node) []float64 {
	pid := n.pid()
	if pid == 0 || n.age() < sampleEvery {
		return nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	field := func(name string) float64 {
		for line := range strings.Lines(string(status)) {
			if value, isIt := strings.CutPrefix(line, name+":"); isIt {
				number, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
				return number
			}
		}
		return 0
	}
	open, err := openDescriptors(pid)
	if err != nil {
		return nil
	}
	var blocks int64
	_ = filepath.WalkDir(n.data(), func(_ string, entry fs.DirEntry, err error) error {
		// Files are renamed and removed meanwhile.
		if err == nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil {
				blocks += info.Sys().(*syscall.Stat_t).Blocks
			}
		}
		return nil
	})
	return []float64{field("RssAnon") / 1024, float64(open), field("Threads"), float64(blocks) * 512 / (1 << 20)}
}

// verdict says whether something stayed the same.
type verdict struct {
	name string
	err  error
}

// verdicts compare the median of the last quarter of the run with that of the second.
func (s *samples) verdicts() (verdicts []verdict) {
	end := time.Since(s.began).Seconds()
	for which, metric := range nodeMetrics {
		var failed error
		for _, n := range s.founders {
			err := compare(end, metric.factor, metric.amount, func(take func(seconds, value float64)) {
				for _, sample := range s.nodes {
					if sample.node == n.number {
						take(sample.seconds, sample.values[which])
					}
				}
			})
			if err != nil {
				failed = fmt.Errorf("node %d: %w %s", n.number, err, metric.unit)
			}
		}
		verdicts = append(verdicts, verdict{metric.name, failed})
	}
	for kind := range soakKinds {
		err := compare(end, latencyFactor, latencyAmountMs, func(take func(seconds, value float64)) {
			for _, sample := range s.clients {
				if sample.kind == kind && sample.hasPercentiles {
					take(sample.seconds, sample.p99Ms)
				}
			}
		})
		verdicts = append(verdicts, verdict{"p99 of " + soakKinds[kind].name, err})
	}
	return verdicts
}

// compare fails if the median of the last quarter is above that of the second quarter, times a
// factor, plus an amount.
func compare(end, factor, amount float64, each func(take func(seconds, value float64))) error {
	var second, last []float64
	each(func(seconds, value float64) {
		switch quarter := int(4 * seconds / end); quarter {
		case 1:
			second = append(second, value)
		case 3:
			last = append(last, value)
		}
	})
	if len(second) == 0 || len(last) == 0 {
		return fmt.Errorf("no samples of the second or the last quarter")
	}
	before, after := median(second), median(last)
	if after > before*factor+amount {
		return fmt.Errorf("the median rose from %.1f to %.1f, which is more than %.1f", before, after, before*factor+amount)
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (s *samples) writeNodes(path string) error {
	rows := [][]string{{"seconds", "node", "anonymous_mib", "descriptors", "threads", "data_mib"}}
	for _, sample := range s.nodes {
		row := []string{fmt.Sprintf("%.1f", sample.seconds), fmt.Sprint(sample.node)}
		for _, value := range sample.values {
			row = append(row, fmt.Sprintf("%.1f", value))
		}
		rows = append(rows, row)
	}
	return writeCSV(path, rows)
}

func (s *samples) writeClients(path string) error {
	rows := [][]string{{"seconds", "kind", "done", "failed", "p50_ms", "p99_ms"}}
	for _, sample := range s.clients {
		row := []string{fmt.Sprintf("%.1f", sample.seconds), soakKinds[sample.kind].name, fmt.Sprint(sample.done),
			fmt.Sprint(sample.failed), "", ""}
		if sample.hasPercentiles {
			row[4], row[5] = fmt.Sprintf("%.2f", sample.p50Ms), fmt.Sprintf("%.2f", sample.p99Ms)
		}
		rows = append(rows, row)
	}
	return writeCSV(path, rows)
}

func writeCSV(path string, rows [][]string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return csv.NewWriter(file).WriteAll(rows)
}
